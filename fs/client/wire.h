// Wire: a lane's connection while there is one, and the one-sided operations on it.
//
// Operations that the transport has no room for wait their turn here, in order. It remembers which
// buffer pages the device may touch, and after a loss keeps them in quarantine until the connection
// has been destroyed. What happens is told to Events, from within Poll, Read and Write. One thread.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "fs/client/buffer.h"
#include "fs/client/id_map.h"
#include "fs/client/request_table.h"
#include "transport/transport.h"

namespace rdfs::fs::client {

class Wire {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    // Valid during the call. Must not send.
    virtual void OnMessage(ByteSpan message) = 0;
    // The WRITE of `slot` is on its way: a message sent from now on arrives after it.
    virtual void OnWritePosted(Slot slot) = 0;
    virtual void OnOperationDone(Slot slot, const Status& status) = 0;
  };
  // All outlive the wire. `epoll`: where the connection's descriptor is listened to.
  Wire(BufferPool& buffers, Events& events, int epoll)
      : buffers_(buffers), events_(events), epoll_(epoll) {}

  [[nodiscard]] bool connected() const { return connection_ != nullptr && failure_.ok(); }
  // Why the connection must be given up, once something failed; ok otherwise.
  [[nodiscard]] const Status& failure() const { return failure_; }
  void Fail(Status why);
  [[nodiscard]] const transport::Connection* connection() const { return connection_.get(); }

  void Connect(std::unique_ptr<transport::Connection> connection);
  // Gives the connection up, to be destroyed where that may block.
  std::unique_ptr<transport::Connection> Disconnect();
  // The connection that was given up has been destroyed.
  void EndQuarantine();

  void Read(Slot slot, const transport::LocalSlice& to, const transport::RemoteSlice& from,
            transport::Order order);
  void Write(Slot slot, const transport::LocalSlice& from, const transport::RemoteSlice& to);
  void Send(std::span<const ByteSpan> parts);
  void Flush();
  // Runs events until nothing more has arrived, or for a fair while.
  void Poll();
  // False when there is something to Poll.
  bool Arm();

 private:
  struct Operation {
    Slot slot = kNoSlot;
    bool write = false;
    transport::Order order{};
    transport::LocalSlice local;
    transport::RemoteSlice remote;
  };
  void Post(const Operation& operation);
  bool TryPost(const Operation& operation);
  void PostWaiting();
  void EndUse(const Operation& operation);

  BufferPool& buffers_;
  Events& events_;
  const int epoll_;
  std::unique_ptr<transport::Connection> connection_;
  Status failure_;
  IdMap<Operation> in_flight_;     // by transport ticket
  std::deque<Operation> waiting_;  // for room
  std::vector<transport::LocalSlice> quarantine_;
  std::array<transport::Completion, 64> completions_;
  bool posted_ = false;  // a one-sided operation, since the last look at the completions
};

}  // namespace rdfs::fs::client
