// How the two ends of a connection come together at their carriers. The carrier of the end with the
// lower place leads: it hears of the other end, and opens.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <system_error>
#include <utility>

#include "tools/sock/far/carrier_loop.h"
#include "transport/base/log.h"
#include "transport/base/memlock.h"

namespace rdfs::sock::far {
namespace {

// Who hammers our name must not keep what is carried waiting.
constexpr int kAcceptsATurn = 16;
constexpr std::size_t kMostCarried = 4096;
constexpr std::size_t kMostWants = 4096;
constexpr std::chrono::seconds kDialAgain{10};
constexpr std::uint32_t kSmallestRing = 16 * 1024;
// Of what may be pinned, left to the lanes.
constexpr std::uint64_t kLanesPin = 1 << 20;
// A connection takes no more than this part of what is left.
constexpr std::uint64_t kPart = 16;

// What an acceptor is made of.
bool SameKeys(const Pairs& one, const Pairs& other) {
  return one.listen == other.listen && one.listen_at == other.listen_at &&
         one.over_tcp == other.over_tcp &&
         std::ranges::equal(one.pairs, other.pairs, [](const Pair& a, const Pair& b) {
           return a.name == b.name && a.key.text() == b.key.text();
         });
}

}  // namespace

void CarrierLoop::OnPairs(TimePoint now) {
  if (auto pairs = file_->Take(now)) Adopt(*std::move(pairs));
  PlaceAll(now);
}

void CarrierLoop::Adopt(Result<Pairs> pairs) {
  if (!pairs.ok()) return LogWarn("the pairings stay what they were: {}", pairs.status().message());
  const bool others = roads_ == nullptr || !SameKeys(pairs_, *pairs);
  if (others) EndRoads();  // also where nobody is paired any more: no key that was forgotten counts
  if (others && !pairs->pairs.empty()) {
    dialling_.clear();  // of those that are under way nobody will tell
    auto roads = Roads::Create(*pairs);
    if (!roads.ok()) {
      LogError("no more hosts can be reached: {}", roads.status().message());
      file_->Again();  // the next end tries again
      return;
    }
    LogInfo("the pairings have changed; the port is {}", (*roads)->port());
    roads_ = *std::move(roads);
    Watch(roads_->fd(), {Watched::Kind::kNews});
  }
  pairs_ = *std::move(pairs);
  dialling_.clear();
}

// Lanes go on. Who dials a host that does not answer hears of it only at the end of its time.
void CarrierLoop::EndRoads() {
  if (roads_ == nullptr) return;
  Unwatch(roads_->fd(), nullptr);
  roads_->StopAnswering();
  std::shared_ptr<Roads> old = std::move(roads_);
  const auto is_over = [](const std::future<void>& one) {
    return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  std::erase_if(ending_, is_over);
  try {
    auto end = [old = std::move(old)]() mutable { old.reset(); };
    ending_.push_back(std::async(std::launch::async, std::move(end)));
  } catch (const std::system_error&) {
    // No thread for it: it has ended here.
  }
}

// For more connections. One that is worn goes on with those it has.
Lane* CarrierLoop::LaneTo(const std::string& pair) {
  const auto found = std::ranges::find_if(lanes_, [&](const Entry& e) {
    return e.over.ok() && e.lane->pair() == pair && !e.lane->worn();
  });
  return found == lanes_.end() ? nullptr : found->lane.get();
}

// --- Ends of this host

void CarrierLoop::OnNewcomers(TimePoint now) {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    Asker* asker = nullptr;
    switch (askers_.Accept(now, asker)) {
      case Askers::Came::kNobody:
        return;
      case Askers::Came::kNoRoom:
        // It would be told of for as long as that lasts: again at a tick.
        Unwatch(askers_.fd(), nullptr);
        deaf_ = true;
        tick_ = std::min<Deadline>(tick_, now + kFineTick);
        return;
      case Askers::Came::kStranger:
        continue;
      case Askers::Came::kAsker:
        break;
    }
    if (!Watch(asker->socket.get(), {Watched::Kind::kAsker, asker})) Done(*asker, std::nullopt);
    tick_ = std::min<Deadline>(tick_, now + kFineTick);
  }
}

void CarrierLoop::OnAsker(Asker& asker, TimePoint now) {
  const bool first = !asker.ask;
  const std::size_t holds = askers_.holds().size();
  const bool stays = askers_.Hear(asker);
  if (askers_.holds().size() > holds) {
    Watch(askers_.holds().back().get(), {Watched::Kind::kHold});
  }
  if (!stays) return Done(asker, std::nullopt);
  if (!first || !asker.ask) return;
  if (const auto refusal = Check(asker)) return Done(asker, refusal);
  // A pairing that was made a moment ago counts.
  asker.look = file_->Look(now);
  if (file_->Over(asker.look, now)) Place(asker, now);
}

// Those whose look at the pairings has come, or is not waited for any longer.
void CarrierLoop::PlaceAll(TimePoint now) {
  // What is left of its own patience behind that is for meeting.
  constexpr auto kToMeet = kPatience - PairsFile::kPatience;
  for (auto asker = askers_.all().begin(); asker != askers_.all().end();) {
    Asker& one = *asker++;
    const bool over = file_->Over(one.look, now) || now >= one.until - kToMeet;
    if (one.look != 0 && over) Place(one, now);
  }
}

void CarrierLoop::Place(Asker& asker, TimePoint now) {
  asker.look = 0;
  const auto refusal = RoadFor(asker, now);
  if (refusal) return Done(asker, refusal);
  Ahead(asker);
}

// Why it cannot be served, wherever it belongs.
std::optional<Refusal> CarrierLoop::Check(const Asker& asker) const {
  const auto socket = FindSocket(asker.ask->places);
  if (!socket.ok() || !*socket || (*socket)->cookie != asker.ask->cookie ||
      (*socket)->owner != geteuid()) {
    return Refusal::kNotYours;
  }
  if (carried_ >= kMostCarried) return Refusal::kNoRoom;
  return std::nullopt;
}

// Where it belongs; or why it cannot be served.
std::optional<Refusal> CarrierLoop::RoadFor(Asker& asker, TimePoint now) {
  const Pair* const pair = pairs_.WithAddress(asker.ask->places.there.address);
  if (pair == nullptr) return Refusal::kNotPaired;
  asker.pair = pair->name;
  if (LaneTo(pair->name) != nullptr) return std::nullopt;
  const auto known = dialling_.find(pair->name);
  if (known != dialling_.end() && known->second.under_way) return std::nullopt;
  if (known != dialling_.end() && now < known->second.again) return known->second.refusal;
  if (roads_ == nullptr) return Refusal::kUnreachable;
  dialling_[pair->name] = {};
  roads_->Dial(*pair, asker.ask->places.there.address);
  return std::nullopt;
}

// As far as it goes: the leader opens if it has heard of the other end, the other tells it.
void CarrierLoop::Ahead(Asker& asker) {
  const TcpPlaces& places = asker.ask->places;
  if (Leads(places)) {
    const auto want =
        std::ranges::find(wants_, places, [](const Want& w) { return w.wanted.places; });
    if (want == wants_.end()) return;
    Lane& lane = *want->lane;
    const Wanted wanted = want->wanted;
    wants_.erase(want);
    return Lead(asker, lane, wanted);
  }
  Lane* const lane = LaneTo(asker.pair);
  if (lane == nullptr || asker.told) return;
  const std::uint32_t ring = RingFor(*lane);
  if (ring == 0) return Done(asker, Refusal::kNoRoom);
  asker.told = true;
  lane->Send({0, Wanted{.places = places, .flags = asker.ask->flags, .largest_ring = ring}});
}

void CarrierLoop::Done(Asker& asker, std::optional<Refusal> refusal) {
  if (refusal) Refuse(asker.socket, *refusal);
  Unwatch(asker.socket.get(), &asker);
  askers_.Forget(asker);
}

// --- Roads

void CarrierLoop::OnNews() {
  for (Roads::News& news : roads_->Take()) {
    if (!news.parts) {
      LogInfo("no road to '{}': {}", news.pair, news.status.message());
      const bool no_rdma = news.status.code() == Code::kUnavailable;
      const Refusal refusal = no_rdma ? Refusal::kNoRdma : Refusal::kUnreachable;
      // Its carrier may have dialled us meanwhile.
      if (LaneTo(news.pair) != nullptr) continue;
      dialling_[news.pair] = {false, refusal, DeadlineAfter(kDialAgain)};
      for (auto asker = askers_.all().begin(); asker != askers_.all().end();) {
        Asker& one = *asker++;
        if (one.pair == news.pair) Done(one, refusal);
      }
      continue;
    }
    dialling_.erase(news.pair);
    auto lane = std::make_unique<Lane>(*std::move(news.parts), *this, BootClock::now());
    if (!Watch(lane->fd(), {Watched::Kind::kLane, lane.get()})) continue;
    LogInfo("a road to '{}': {}", lane->pair(), transport::Name(lane->capabilities().kind));
    lanes_.push_front({.lane = std::move(lane), .armed = false, .over = {}});
    for (auto asker = askers_.all().begin(); asker != askers_.all().end();) {
      Asker& one = *asker++;
      if (one.ask && one.pair == news.pair) Ahead(one);
    }
  }
}

// --- Records of the other carrier

Status CarrierLoop::OnWanted(Lane& lane, const Wanted& wanted) {
  Wanted ours = wanted;
  ours.places = wanted.places.Reversed();
  if (!Leads(ours.places)) return {Code::kProtocolError, "it leads, and asks us to"};
  if (!AllowedRing(wanted.largest_ring, kMostRingBytes))
    return {Code::kProtocolError, "it opens what cannot be"};
  Asker* const asker = askers_.Find(ours.places);
  if (asker != nullptr && asker->pair == lane.pair()) {
    Lead(*asker, lane, ours);
    return {};
  }
  if (wants_.size() == kMostWants) return {};
  wants_.push_back({.wanted = ours, .lane = &lane, .until = DeadlineAfter(kPatience)});
  tick_ = std::min<Deadline>(tick_, BootClock::now());
  return {};
}

// What may be pinned is divided so that the first connections have large rings and many have some.
std::uint32_t CarrierLoop::RingFor(const Lane& lane) const {
  if (lane.capabilities().kind == transport::Kind::kTcp) return kLargestRing;
  const std::uint64_t pinnable = MemlockLimit();
  if (pinnable == UINT64_MAX) return kLargestRing;
  const std::uint64_t taken = pinned_bytes_ + kLanesPin;
  const std::uint64_t ring = pinnable <= taken ? 0 : (pinnable - taken) / kPart / 2;
  return ring < kSmallestRing ? 0
                              : static_cast<std::uint32_t>(
                                    std::bit_floor(std::min<std::uint64_t>(ring, kLargestRing)));
}

Result<std::unique_ptr<Carried>> CarrierLoop::Make(Lane& lane, std::uint32_t id, std::uint32_t ring,
                                                   transport::RemoteRegion& share) {
  if (ring == 0 || carried_ >= kMostCarried) {
    return Status(Code::kResourceExhausted, "no memory can be pinned for one more connection");
  }
  RDFS_ASSIGN_OR_RETURN(auto made, Carried::Create(id, lane.domain(), ring));
  RDFS_ASSIGN_OR_RETURN(share, lane.Share(made->sink()));
  RDFS_RETURN_IF_ERROR(lane.MayMove(made->source()));
  return made;
}

// From here on the connection is counted and heard.
void CarrierLoop::Serve(Lane& lane, std::unique_ptr<Carried> made, Fd data, std::uint64_t cookie) {
  made->Seat(std::move(data), cookie);
  Carried& connection = lane.Add(std::move(made));
  connection.watched = {connection.data(), connection.room()};
  ++carried_;
  pinned_bytes_ += 2 * std::uint64_t{connection.largest_ring()};
  const bool heard = Watch(connection.data(), {Watched::Kind::kBell, &connection}) &&
                     Watch(connection.room(), {Watched::Kind::kBell, &connection});
  if (!heard) connection.CloseBells();
}

void CarrierLoop::Lead(Asker& asker, Lane& lane, const Wanted& wanted) {
  Open open{.places = asker.ask->places,
            .flags = asker.ask->flags,
            .largest_ring = std::min(RingFor(lane), wanted.largest_ring),
            .ring = {}};
  auto made = Make(lane, lane.NextId(), open.largest_ring, open.ring);
  if (!made.ok()) {
    LogDebug("a connection stays on TCP: {}", made.status().message());
    return Done(asker, Refusal::kNoRoom);
  }
  const std::uint32_t id = (*made)->id();
  (*made)->SetPeerFlags(wanted.flags);
  Unwatch(asker.socket.get(), &asker);
  Serve(lane, *std::move(made), std::move(asker.socket), asker.ask->cookie);
  askers_.Forget(asker);
  lane.Send({id, open});
}

Status CarrierLoop::OnOpen(Lane& lane, std::uint32_t id, const Open& open) {
  const TcpPlaces places = open.places.Reversed();
  if (Leads(places) || !AllowedRing(open.largest_ring, kMostRingBytes) ||
      open.ring.length < open.largest_ring) {
    return {Code::kProtocolError, "it opens what cannot be"};
  }
  const auto refuse = [&](Refusal reason) {
    lane.Send({id, Refused{static_cast<std::uint32_t>(reason)}});
    return Status::Ok();
  };
  Asker* const asker = askers_.Find(places);
  if (asker == nullptr || asker->pair != lane.pair()) return refuse(Refusal::kAlone);
  const bool room = open.largest_ring <= RingFor(lane);
  Opened opened;
  auto made = Make(lane, id, room ? open.largest_ring : 0, opened.ring);
  if (!made.ok()) {
    LogDebug("a connection stays on TCP: {}", made.status().message());
    Done(*asker, Refusal::kNoRoom);
    return refuse(Refusal::kNoRoom);
  }
  lane.Send({id, opened});
  Carried& connection = **made;
  Unwatch(asker->socket.get(), asker);
  Serve(lane, *std::move(made), std::move(asker->socket), asker->ask->cookie);
  askers_.Forget(*asker);
  connection.Begin(open.flags, open.ring);
  Wake(connection);
  return {};
}

Status CarrierLoop::OnOpened(Lane&, Carried& connection, const Opened& opened) {
  if (opened.ring.length < connection.largest_ring()) {
    return {Code::kProtocolError, "a ring that is too small"};
  }
  connection.Begin(connection.peer_flags(), opened.ring);
  Wake(connection);
  return {};
}

void CarrierLoop::OnRefused(Lane&, Carried& connection, const Refused& refused) {
  for (const int fd : connection.watched) Unwatch(fd, &connection);
  const Fd data = connection.Unseat();
  const bool known = refused.reason >= 1 && refused.reason <= kLastRefusal;
  Refuse(data, known ? static_cast<Refusal>(refused.reason) : Refusal::kAlone);
}

}  // namespace rdfs::sock::far
