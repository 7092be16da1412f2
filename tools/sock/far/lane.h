// One lane to a paired host: the connection of the transport layer, the records that go over it,
// and the connections that it carries. Owned by the carrier, on its thread; never sleeps.
//
// An error of any call means that the lane is over, with all that it carries: the peer has said
// what cannot be, or the wire is down. Destroying it closes the bells of what it carried, ends the
// wire, and only then gives up the memory that WRITEs may still have been reading from.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "tools/sock/far/carried.h"
#include "tools/sock/far/wire.h"
#include "transport/session/session.h"

namespace rdfs::sock::far {

class Lane final : private Carried::Road {
 public:
  // What a lane asks of the carrier, for records that are not of a connection that goes on.
  class Host {
   public:
    virtual ~Host() = default;
    virtual Status OnWanted(Lane& lane, const Wanted& wanted) = 0;
    // A connection that the other carrier leads. Answers with Opened or Refused.
    virtual Status OnOpen(Lane& lane, std::uint32_t id, const Open& open) = 0;
    virtual Status OnOpened(Lane& lane, Carried& connection, const Opened& opened) = 0;
    // The connection goes after this.
    virtual void OnRefused(Lane& lane, Carried& connection, const Refused& refused) = 0;
    // There is something to look at.
    virtual void Wake(Carried& connection) = 0;
    virtual void Forget(Carried& connection) = 0;
  };

  // A peer that has said nothing for so long is gone, if anything is carried.
  static constexpr std::chrono::seconds kBeatEvery{5};
  static constexpr std::chrono::seconds kSilence{20};

  struct Parts {
    std::string pair;      // its name
    bool dialled = false;  // we have
    std::shared_ptr<transport::Domain> domain;
    std::unique_ptr<transport::Session> session;  // of one that we have dialled
    std::unique_ptr<transport::Connection> connection;
  };
  Lane(Parts parts, Host& host, TimePoint now);
  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] const std::string& pair() const { return parts_.pair; }
  [[nodiscard]] int fd() const { return parts_.connection->fd(); }
  [[nodiscard]] const std::shared_ptr<transport::Domain>& domain() const { return parts_.domain; }
  [[nodiscard]] bool carries() const { return !carried_.empty(); }
  [[nodiscard]] const transport::Capabilities& capabilities() const {
    return parts_.connection->capabilities();
  }

  // Whether a side has few ids left: no more connections than are under way already.
  static constexpr std::uint32_t kLastIds = 1U << 16U;
  [[nodiscard]] bool worn() const {
    return std::max(next_id_, peers_next_id_) > UINT32_MAX - kLastIds;
  }
  // An id for a connection that we lead.
  [[nodiscard]] std::uint32_t NextId() { return std::exchange(next_id_, next_id_ + 2); }
  // Whether the peer may use this id for a connection that it leads; from then on not again.
  bool TakePeersId(std::uint32_t id);
  Carried& Add(std::unique_ptr<Carried> connection);
  Result<transport::RemoteRegion> Share(const transport::MemoryRegion& region) {
    return parts_.connection->Share(region);
  }
  [[nodiscard]] Status MayMove(const transport::MemoryRegion& region) const {
    return parts_.connection->MayMove(region);
  }
  void Send(const Record& record);

  // Takes what has come; true when there was something.
  Result<bool> Poll(TimePoint now);
  // Looks at one of its connections; true when there was something. It may be gone after that.
  Result<bool> Look(Carried& connection, bool rests);
  // Has everything that is carried looked at.
  void WakeAll() {
    for (auto& [id, connection] : carried_) host_.Wake(*connection);
  }
  // Hands everything to the wire.
  Status Flush(TimePoint now);
  // Bytes that WRITEs were posted for since the last call.
  std::uint64_t TakeShipped() { return std::exchange(shipped_, 0); }
  // To sleep on fd(); false: Poll first.
  Result<bool> Arm() { return parts_.connection->Arm(); }
  // Beats, and finds out that the peer is gone. `waiting`: somebody here waits for its answer.
  Status Tick(TimePoint now, bool waiting);

 private:
  void Tell(std::uint32_t connection, const Word& word) override;
  void Tell(std::uint32_t connection, const Bytes& bytes) override;
  [[nodiscard]] bool MayShip() const override;
  Status Ship(Carried& connection, std::uint64_t offset, std::uint64_t count) override;

  Status OnMessage(ByteSpan message);
  Status OnRecord(const Record& record);
  Status OnAnswer(const Record& record);
  Status OnWritten(const transport::Completion& completion);
  void RemoveIfOver(Carried& connection);

  Parts parts_;
  Host& host_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Carried>> carried_;
  std::uint32_t next_id_;
  std::uint32_t peers_next_id_;
  struct Written {
    transport::Ticket ticket;
    Carried* connection;
  };
  std::deque<Written> writes_;
  std::uint64_t shipped_ = 0;
  // What is to be sent, message by message: not before Flush, since sending takes back the memory
  // of messages that have come. Kept for the next ones.
  struct Message {
    std::array<std::byte, kMostMessageBytes> bytes;
    std::size_t size = 0;
  };
  std::deque<Message> out_;
  std::size_t out_used_ = 0;
  bool watched_ = false;  // heard_ counts
  TimePoint heard_;
  TimePoint said_;
};

}  // namespace rdfs::sock::far
