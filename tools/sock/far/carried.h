// One carried connection at a carrier: its channel to the end here, the bells, the memory that the
// other carrier writes into, and the relay that decides. Owned by its Lane, on the carrier's
// thread; never sleeps.
//
// The other carrier reaches the ring of the direction to our end and nothing else of the channel:
// the words, and the ring that our end writes, are out of its reach.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/sock/far/relay.h"
#include "tools/sock/peer_socket.h"
#include "tools/sock/ring.h"
#include "transport/base/fd.h"
#include "transport/transport.h"

namespace rdfs::sock::far {

class Lane;

class Carried {
 public:
  // What a connection's effects need of its lane.
  class Road {
   public:
    virtual ~Road() = default;
    virtual void Tell(std::uint32_t connection, const Word& word) = 0;
    // Copies the bytes.
    virtual void Tell(std::uint32_t connection, const Bytes& bytes) = 0;
    // Whether both pieces of a WRITE can be posted now.
    [[nodiscard]] virtual bool MayShip() const = 0;
    // Posts a WRITE of our ring's bytes to the same place over there. Errors end the lane.
    virtual Status Ship(Carried& connection, std::uint64_t offset, std::uint64_t count) = 0;
  };

  // Errors: kResourceExhausted, kErrno (memory, descriptors).
  static Result<std::unique_ptr<Carried>> Create(std::uint32_t id,
                                                 const std::shared_ptr<transport::Domain>& domain,
                                                 std::uint32_t largest_ring);
  // Our end is told by its bells being closed.
  ~Carried() = default;
  Carried(const Carried&) = delete;
  Carried& operator=(const Carried&) = delete;

  [[nodiscard]] std::uint32_t id() const { return id_; }
  [[nodiscard]] std::uint32_t largest_ring() const { return channel_.largest_ring(); }
  [[nodiscard]] const transport::MemoryRegion& sink() const { return *sink_; }
  [[nodiscard]] const transport::MemoryRegion& source() const { return *source_; }

  // The end that is to be served: the socket on which it asked becomes the data bell.
  void Seat(Fd data, std::uint64_t cookie) {
    data_ = std::move(data);
    cookie_ = cookie;
  }
  // Both ends have come: gives ours its channel. From here on it is looked at. `flags`: of the
  // other end; `ring`: where its carrier takes bytes.
  void Begin(std::uint32_t flags, const transport::RemoteRegion& ring);
  // The other end's, where they are known before it can begin.
  void SetPeerFlags(std::uint32_t flags) { peer_flags_ = flags; }
  [[nodiscard]] std::uint32_t peer_flags() const { return peer_flags_; }
  [[nodiscard]] bool begun() const { return begun_; }
  [[nodiscard]] const transport::RemoteRegion& remote_ring() const { return remote_ring_; }
  // Our end gets no channel. Gives its socket up, to be told why.
  Fd Unseat() { return std::move(data_); }

  // Does all that can be done now; true when there was something. `rests`: the looks before have
  // found nothing. Errors of the lane.
  Result<bool> Look(Road& road, bool rests);
  Status On(const Word& word, Road& road);
  Status On(const Bytes& bytes, Road& road);
  // Asks to be woken by either bell; who sleeps on them looks once more first.
  void Arm();
  // The opposite, for who looks again and again: then our end makes no system call to ring. Whoever
  // sleeps afterwards takes another Arm and another look.
  void Disarm();
  // A bell was found readable, or hung up. Takes one ring, or looks for the end behind all of them:
  // what is left is told again.
  void Hear(int bell, bool hung_up);
  // Our end cannot be served any more, or is gone.
  void CloseBells();

  // -1 once it was found hung up.
  [[nodiscard]] int data() const { return data_.get(); }
  [[nodiscard]] int room() const { return room_.get(); }
  // Its end's next step is not announced by a bell: look again soon.
  [[nodiscard]] bool Soon() const { return relay_.Soon(); }
  // Bytes wait until one more WRITE can be posted.
  [[nodiscard]] bool Waits() const { return relay_.Waits(); }
  // The last look has left bytes because there was no room for one more WRITE at all.
  [[nodiscard]] bool HadToWait() const { return had_to_wait_; }
  // Nothing is left to be said, no WRITE is under way: it can go.
  [[nodiscard]] bool Over() const { return relay_.Over() && in_flight_ == 0; }
  void Posted() { ++in_flight_; }
  void Written() { --in_flight_; }

  // The carrier's own notes: whose it is, how often it was looked at for nothing, whether it is
  // looked at at all, whether something has come of that since the last sleep, and what is waited
  // for.
  Lane* lane = nullptr;
  unsigned idle_looks = 0;
  bool awake = false;
  bool busy = false;
  std::array<int, 2> watched{-1, -1};

 private:
  Carried(std::uint32_t id, Channel channel, std::unique_ptr<transport::MemoryRegion> source,
          std::unique_ptr<transport::MemoryRegion> sink, Fd room, Fd their_room);

  [[nodiscard]] Relay::View View(bool rests) const;
  Status CarryOut(const Effects& effects, Road& road);
  Status Ship(const Effect& effect, Road& road);
  void Put(const Effect& effect);
  void StoreFrom(const Effect& effect);
  void StoreTo(const Effect& effect);
  void RingData();
  void RingRoom();

  const std::uint32_t id_;
  Channel channel_;
  const Direction from_, to_;  // our end
  std::unique_ptr<transport::MemoryRegion> source_, sink_;
  Fd data_, room_, their_room_;
  std::uint64_t cookie_ = 0;
  std::uint32_t peer_flags_ = 0;
  transport::RemoteRegion remote_ring_;
  Relay relay_;
  Effects effects_;
  ByteSpan came_;  // of the record that is being obeyed
  bool begun_ = false;
  bool hung_up_ = false;
  bool had_to_wait_ = false;
  bool armed_ = false;  // the flags were set, and have not been looked at since
  // A ring lies in the bell, or is about to: to be taken before a sleep.
  bool rung_data_ = true;
  bool rung_room_ = true;
  std::uint64_t in_flight_ = 0;
  unsigned soon_ = 0;
  unsigned advances_ = 0;
};

// Those that had to wait for their lane are looked at first the next time, each group in the order
// that it has: so a lane's few WRITEs go round. None is null.
void WaitersFirst(std::vector<Carried*>& connections);

}  // namespace rdfs::sock::far
