// Whether a history of any object is linearizable, by search: names in a directory, locks, and
// registers whose values come back. (history.h is quicker where every value is written once.)
//
// As Wing and Gong (Testing and Verifying Concurrent Objects, JPDC 17/1-2, 1993): every order of
// the calls that overlap is tried. Of a way that was tried only its end is remembered, the state of
// the object and which of the open calls have taken effect, so that no two ways with one end are
// both followed. The ends are kept as a set, over which the history goes once; where a call ends
// and none of them allows its answer, the history is not linearizable.
//
// A Model has a State, which is ordered, a Call, which says what was asked and answered, and two
// functions: `static bool Step(State&, const Call&)`, whether the call may take effect in this
// state with this answer, and what it changes; `static std::string Tell(const Call&)`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace rdfs::coherence {

template <typename Call>
struct Timed {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  Call call;
  std::uint64_t begin = 0;
  std::uint64_t end = kNever;
  bool sure = true;  // false, or without an end: nobody knows whether it has happened
};

template <typename Model>
class Search {
 public:
  using State = typename Model::State;
  using History = std::vector<Timed<typename Model::Call>>;

  Search(const History& history, State initial) : history_(history) {
    ways_.insert({std::move(initial), {}});
  }

  // Where so many ways are open the rest is left undecided.
  static constexpr std::size_t kMostWays = 4000;

  // Empty, or what is wrong.
  std::string WhyNot() {
    std::vector<std::pair<std::uint64_t, std::size_t>> begins, ends;
    for (std::size_t i = 0; i < history_.size(); ++i) {
      begins.emplace_back(history_[i].begin, i);
      if (history_[i].end != Timed<typename Model::Call>::kNever) {
        ends.emplace_back(history_[i].end, i);
      }
    }
    std::ranges::sort(begins);
    std::ranges::sort(ends);
    auto next = begins.begin();
    for (const auto& [end, call] : ends) {
      // What begins in the moment in which another one ends may come before it.
      for (; next != begins.end() && next->first <= end; ++next) open_.push_back(next->second);
      IsSure(call) ? End(call) : Close(call);
      if (undecided_) return {};
      if (ways_.empty()) return Failure(call);
    }
    return {};
  }
  [[nodiscard]] bool undecided() const { return undecided_; }

 private:
  // A state, and which of the open calls have led to it.
  using Way = std::pair<State, std::set<std::size_t>>;

  [[nodiscard]] bool IsSure(std::size_t call) const {
    return history_[call].sure && history_[call].end != Timed<typename Model::Call>::kNever;
  }

  // From here on it has happened or not.
  void Close(std::size_t call) {
    const std::set<Way> without = ways_;
    End(call);
    for (const Way& way : without) {
      if (!way.second.contains(call)) ways_.insert(way);
    }
  }

  // Follows every way to where `call` has taken effect.
  void End(std::size_t call) {
    std::set<Way> met, ended;
    std::vector<Way> left(ways_.begin(), ways_.end());
    while (!left.empty() && !undecided_) {
      Way way = std::move(left.back());
      left.pop_back();
      if (way.second.erase(call) != 0) {
        ended.insert(std::move(way));
        continue;
      }
      for (const std::size_t other : open_) {
        if (way.second.contains(other)) continue;
        Way further = way;
        if (!Model::Step(further.first, history_[other].call)) continue;
        further.second.insert(other);
        // Nobody asks whether such a one has happened.
        if (!IsSure(other) && further.first == way.first) continue;
        if (met.insert(further).second) left.push_back(std::move(further));
        undecided_ = met.size() > kMostWays;
      }
    }
    std::erase(open_, call);
    ways_ = std::move(ended);
  }

  std::string Failure(std::size_t call) const {
    const auto tell = [this](std::size_t i) {
      return Model::Tell(history_[i].call) + " [" + std::to_string(history_[i].begin) + ", " +
             (history_[i].end == Timed<typename Model::Call>::kNever
                  ? "never"
                  : std::to_string(history_[i].end)) +
             "]";
    };
    std::string why = tell(call) + " is impossible after all that had ended";
    for (const std::size_t other : open_) why += "; open: " + tell(other);
    // What had ended last, which is mostly where it went wrong.
    std::vector<std::size_t> before;
    for (std::size_t i = 0; i < history_.size(); ++i) {
      if (history_[i].end < history_[call].end) before.push_back(i);
    }
    std::ranges::sort(before, {}, [this](std::size_t i) { return history_[i].end; });
    const std::size_t first = before.size() > 8 ? before.size() - 8 : 0;
    for (std::size_t i = first; i < before.size(); ++i) why += "; before: " + tell(before[i]);
    return why;
  }

  const History& history_;
  std::vector<std::size_t> open_;
  std::set<Way> ways_;
  bool undecided_ = false;
};

template <typename Model>
std::string WhyNotLinearizable(const std::vector<Timed<typename Model::Call>>& history,
                               typename Model::State initial = {}) {
  return Search<Model>(history, std::move(initial)).WhyNot();
}

}  // namespace rdfs::coherence
