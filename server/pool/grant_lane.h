// GrantLane: what one lane has been told about arenas, so that each is announced once, before the
// first grant that names it.
//
// Made by the owner of the lane's connection and shared with the reads in progress. The thread of
// the lane's loop only; Close when the connection goes, after which nothing is granted any more and
// the connection is not touched.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "fs/protocol.h"
#include "server/pool/pool.h"
#include "transport/transport.h"

namespace rdfs::server {

// A grant names one extent, and no client takes one that is longer.
static_assert(kMaxExtentBytes <= fs::kMaxExtentBytes);

class GrantLane {
 public:
  // Sends one kArena message on the lane, ahead of the reply that is being made.
  using SendArena = std::function<Status(const fs::ArenaMessage&)>;

  // `connection` outlives the time until Close.
  GrantLane(transport::Connection& connection, SendArena send)
      : connection_(&connection), send_(std::move(send)) {}

  // True when grants on this lane may name `arena`; announces it and its generation words the first
  // time. False for ever when the transport could not register it (memlock): logged once.
  bool Announce(const Arena& arena);

  // Bytes up to which it is faster to send file content inside the reply than to grant it.
  [[nodiscard]] std::uint32_t inline_bytes() const;
  // Whether a READ of the peer's is answered by this process (tcp).
  [[nodiscard]] bool passive() const;
  [[nodiscard]] bool open() const { return connection_ != nullptr; }
  void Close() { connection_ = nullptr; }

 private:
  Status Tell(std::uint32_t number, const transport::MemoryRegion& region);

  transport::Connection* connection_;
  SendArena send_;
  std::unordered_map<std::uint32_t, bool> usable_;  // by arena number
};

}  // namespace rdfs::server
