// Turns: which lane a loop looks at next, and how many messages it takes from it. Sessions take
// turns, however many lanes each of them has.
//
// In a round each session that is here has one turn. It ends when its lanes have been looked at
// once each, or when as much was taken as fills it; the next one begins at the lane behind. A turn
// is full with kMostMessages, and where other sessions are here with what takes about kTurn to
// serve, by what the session's last ones took: so what somebody waits for a session that keeps the
// loop busy is a matter of time and not of how much it asks for, or how dear that is. Who is alone
// has kMostMessages of each of its lanes, and ends behind the one with which kTurn has passed:
// others may have come meanwhile, and the loop has to look for them.
//
// Pure: the loop says how long it took. What it carries by itself for a peer (READs over TCP)
// counts as messages, too. The loop's thread only. What serves a lane may remove that
// lane; everything else comes and goes between rounds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace rdfs::server {

template <typename Lane>
class Turns {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  // Long enough that most small requests of a turn share one hand-over of their answers.
  static constexpr Nanoseconds kTurn{100'000};
  static constexpr std::size_t kMostMessages = 32;

  void Add(std::uint64_t session, Lane lane) {
    const auto found = Find(session);
    Session& at =
        found != sessions_.end() ? *found : sessions_.emplace_back(Session{.id = session});
    at.lanes.push_back(std::move(lane));
  }
  void Remove(std::uint64_t session, const Lane& lane) {
    const auto found = Find(session);
    if (found == sessions_.end()) return;
    std::erase(found->lanes, lane);
    // The one whose turn it is goes with the end of it.
    if (found->lanes.empty() && !in_turn_) sessions_.erase(found);
  }
  // All lanes, which are here no more.
  std::vector<Lane> TakeAll() {
    std::vector<Lane> all;
    for (Session& session : sessions_) {
      all.insert(all.end(), session.lanes.begin(), session.lanes.end());
    }
    sessions_.clear();
    return all;
  }
  [[nodiscard]] bool empty() const { return sessions_.empty(); }

  // One round: serve(lane, most) takes up to `most` messages and returns how many it took, which
  // may be more by what was carried; now() is asked only where several sessions are here, and
  // last(), which costs nothing, says when the last serve that took something was over. Returns
  // whether anything was taken.
  template <typename Serve, typename Now, typename Last>
  bool Round(Serve serve, Now now, Last last) {
    bool busy = false;
    for (std::size_t i = 0; i < sessions_.size();) {
      const bool alone = sessions_.size() == 1;
      const auto begin = alone ? decltype(now()){} : now();
      const std::size_t taken = Turn(sessions_[i], alone, serve, last);
      busy |= taken > 0;
      if (!alone && taken > 0) sessions_[i].Learn(now() - begin, taken);
      if (sessions_[i].lanes.empty()) {
        sessions_.erase(sessions_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    return busy;
  }

 private:
  struct Session {
    std::uint64_t id = 0;
    std::vector<Lane> lanes{};
    std::size_t next = 0;          // where its next turn begins
    Nanoseconds each{kTurn / 16};  // what one of its messages takes

    [[nodiscard]] std::size_t Share() const {
      const auto fit = static_cast<std::size_t>(kTurn / std::max(each, Nanoseconds(1)));
      return std::clamp<std::size_t>(fit, 1, kMostMessages);
    }
    // Half of what is known is the last turn's: a dear one counts at once, one that was cheap by
    // chance does not make the next one long.
    void Learn(Nanoseconds took, std::size_t messages) {
      const Nanoseconds last = took / static_cast<std::int64_t>(messages);
      each = std::max(last, (each + last) / 2);
    }
  };

  auto Find(std::uint64_t session) {
    return std::find_if(sessions_.begin(), sessions_.end(),
                        [session](const Session& at) { return at.id == session; });
  }

  template <typename Serve, typename Last>
  std::size_t Turn(Session& session, bool alone, Serve& serve, Last& last) {
    in_turn_ = true;
    std::size_t left = alone ? session.lanes.size() * kMostMessages : session.Share();
    std::size_t taken = 0;
    std::optional<decltype(last())> begin;
    for (std::size_t looks = session.lanes.size(); looks > 0 && left > 0; --looks) {
      if (session.next >= session.lanes.size()) session.next = 0;
      if (session.lanes.empty()) break;
      const Lane lane = session.lanes[session.next];
      const std::size_t before = session.lanes.size();
      const std::size_t got = serve(lane, std::min(left, kMostMessages));
      taken += got;
      left -= std::min(left, got);
      if (alone && got > 0) {
        if (last() - begin.value_or(last()) >= kTurn) left = 0;
        if (!begin) begin = last();
      }
      if (session.lanes.size() == before) ++session.next;
    }
    in_turn_ = false;
    return taken;
  }

  std::vector<Session> sessions_;
  bool in_turn_ = false;
};

}  // namespace rdfs::server
