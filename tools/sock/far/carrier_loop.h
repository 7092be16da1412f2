// What Carrier::Create makes: the event loop (carrier.cc) and how ends of two hosts come together
// (carrier_meet.cc). One thread; see carrier.h.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <ctime>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/sock/far/askers.h"
#include "tools/sock/far/carrier.h"
#include "tools/sock/far/lane.h"
#include "tools/sock/far/pairs_file.h"
#include "tools/sock/far/roads.h"
#include "transport/base/adaptive_spin.h"

namespace rdfs::sock::far {

// An answer comes from a program behind another carrier, of which each may have to be woken up
// first.
inline constexpr std::chrono::microseconds kLongestSpin{400};
// With somebody waiting, deadlines are kept so exactly.
inline constexpr std::chrono::milliseconds kFineTick{100};

class CarrierLoop final : public Carrier, public Lane::Host {
 public:
  CarrierLoop(CarrierOptions options, Pairs pairs, std::unique_ptr<PairsFile> file, Askers askers,
              std::unique_ptr<Roads> roads, Fd epoll, EventFd stop);
  ~CarrierLoop() override;

  Status Run() override;
  void Stop() override;
  [[nodiscard]] std::uint16_t port() const override {
    return roads_ == nullptr ? 0 : roads_->port();
  }

 private:
  struct Entry {
    std::unique_ptr<Lane> lane;
    bool armed = false;  // its fd says when there is something
    Status over;
  };
  // An end of the other host's that has come while ours has not.
  struct Want {
    Wanted wanted;  // with the places as ours will say them
    Lane* lane = nullptr;
    Deadline until;
  };
  // What a descriptor is watched for.
  struct Watched {
    enum class Kind : std::uint8_t { kStop, kListener, kPairs, kNews, kHold, kAsker, kLane, kBell };
    Kind kind{};
    void* what = nullptr;
  };

  // The loop (carrier.cc).
  bool Watch(int fd, Watched watched);
  void Unwatch(int fd, const void* what);
  bool Turn(TimePoint now);
  bool LookAtAll();
  void WakeBusy();
  void ArmConnections();
  bool ArmLanes(TimePoint now);
  void Events(int timeout_ms, TimePoint& now);
  void OnEvent(const epoll_event& event, TimePoint now);
  [[nodiscard]] int Patience(TimePoint now) const;
  void Tick(TimePoint now);
  void Note(Entry& entry, const Status& status);
  void RemoveDead();
  Entry* EntryOf(const Lane& lane);

  // Coming together (carrier_meet.cc).
  void OnNewcomers(TimePoint now);
  void OnAsker(Asker& asker, TimePoint now);
  [[nodiscard]] std::optional<Refusal> Check(const Asker& asker) const;
  std::optional<Refusal> RoadFor(Asker& asker, TimePoint now);
  void Place(Asker& asker, TimePoint now);
  void PlaceAll(TimePoint now);
  void Ahead(Asker& asker);
  void Done(Asker& asker, std::optional<Refusal> refusal);
  void OnNews();
  void Lead(Asker& asker, Lane& lane, const Wanted& wanted);
  [[nodiscard]] std::uint32_t RingFor(const Lane& lane) const;
  Result<std::unique_ptr<Carried>> Make(Lane& lane, std::uint32_t id, std::uint32_t ring,
                                        transport::RemoteRegion& share);
  void Serve(Lane& lane, std::unique_ptr<Carried> made, Fd data, std::uint64_t cookie);
  Lane* LaneTo(const std::string& pair);
  void OnPairs(TimePoint now);
  void Adopt(Result<Pairs> pairs);
  void EndRoads();
  static bool Leads(const TcpPlaces& places) { return places.here < places.there; }

  Status OnWanted(Lane& lane, const Wanted& wanted) override;
  Status OnOpen(Lane& lane, std::uint32_t id, const Open& open) override;
  Status OnOpened(Lane& lane, Carried& connection, const Opened& opened) override;
  void OnRefused(Lane& lane, Carried& connection, const Refused& refused) override;
  void Wake(Carried& connection) override;
  void Forget(Carried& connection) override;

  const CarrierOptions options_;
  Pairs pairs_;
  const std::unique_ptr<PairsFile> file_;
  const Fd epoll_;
  const EventFd stop_;
  std::atomic<bool> stopping_{false};
  Askers askers_;
  std::unique_ptr<Roads> roads_;           // null: no pairs, or no port to listen on for them
  std::vector<std::future<void>> ending_;  // the roads of before
  bool deaf_ = false;                      // nobody is accepted before the next tick
  std::unordered_map<int, Watched> watched_;
  std::vector<Carried*> awake_;        // null where one has gone
  std::vector<Carried*> busy_before_;  // the last sleep, or since
  std::list<Want> wants_;
  // Pairs that are being dialled, or could not be: not tried again before.
  struct Dialling {
    bool under_way = true;
    Refusal refusal = Refusal::kUnreachable;
    Deadline again;
  };
  std::map<std::string, Dialling> dialling_;
  std::uint64_t pinned_bytes_ = 0;
  std::size_t carried_ = 0;
  std::uint64_t shipped_ = 0;  // bytes, since the kernel was last asked for news
  AdaptiveSpin spin_{kLongestSpin};
  Deadline tick_{};
  TimePoint busy_{};        // when there was last something to stay for
  std::list<Entry> lanes_;  // last: their end forgets connections
};

}  // namespace rdfs::sock::far
