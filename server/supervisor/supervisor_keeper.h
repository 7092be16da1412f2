// DescriptorKeeper: the worker's side of the supervisor.
//
// Keep and Drop are durable once they return: they stand in the socket's queue, which the
// supervisor reads to its end before it starts another worker, so a worker that is killed right
// behind the call loses nothing. (A Drop that a slow supervisor leaves no room for goes ahead of
// the next packet: until then one descriptor too many is kept.) There is no answer to wait for; the
// bounds are the supervisor's, known from Connect, and counted here.
//
// Threads: any; one mutex, and Keep and Drop may block for a second or two when the supervisor is
// slow. One that does not read is waited for once: until a packet has gone again, all others fail
// at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

enum class PacketType : std::uint16_t;

class DescriptorKeeper {
 public:
  static constexpr std::size_t kMaxKeyBytes = 256;
  static constexpr std::size_t kMaxStateBytes = 16 * 1024;
  using Secret = std::array<std::byte, 32>;

  struct Kept {
    std::vector<std::byte> key;
    std::vector<std::byte> state;
    Fd fd;
  };

  // `fd` is the socket that the supervisor gives its worker; taken over. Blocks until the
  // supervisor has said hello, at most 5 s. Errors: kErrno, kProtocolError (not a supervisor's
  // socket).
  static Result<std::unique_ptr<DescriptorKeeper>> Connect(int fd);
  // For a server without a supervisor (--stdio once, tests): keeps nothing, succeeds always; a
  // random secret and an epoch from the clock.
  static std::unique_ptr<DescriptorKeeper> None();

  // Keeps a duplicate of `fd` under `key`, with `state`, in place of what was kept there. Errors:
  // kResourceExhausted (a bound), kInvalidArgument (key or state too long), kDisconnected,
  // kDeadlineExceeded (the supervisor does not read).
  Status Keep(ByteSpan key, int fd, ByteSpan state = {});
  // Changes the state alone. kNotFound when nothing is kept under `key`.
  Status SetState(ByteSpan key, ByteSpan state);
  void Drop(ByteSpan key);
  // All that is kept, of workers before under this supervisor or one before, with new descriptors
  // (close-on-exec). At the worker's start, before the first Keep. Blocks. Errors: kErrno,
  // kResourceExhausted (RLIMIT_NOFILE), kProtocolError.
  Result<std::vector<Kept>> FetchAll();

  // Another number at each start of a worker, larger under the same supervisor; never 0.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  // Whether an earlier worker ran under the same supervisor (it crashed, or asked to be restarted).
  [[nodiscard]] bool restarted() const { return restarted_; }
  // For signing handles: the same for all workers of one supervisor.
  [[nodiscard]] const Secret& secret() const { return secret_; }
  // Whether there is a supervisor.
  [[nodiscard]] bool supervised() const { return socket_.valid(); }
  [[nodiscard]] std::size_t kept() const;
  // Whether less than half of its room is taken: for what need not be kept at any price.
  [[nodiscard]] bool HasPlenty() const;

 private:
  struct Count {
    std::size_t bytes;
  };
  explicit DescriptorKeeper(Fd socket) : socket_(std::move(socket)) {}
  Status Admit(const std::string& key, std::size_t bytes);
  Status Send(PacketType type, ByteSpan key, ByteSpan state, int fd, Deadline deadline);
  // What is to be dropped goes first: the supervisor counts it until it is told.
  Status TellDropped();
  // What Admit has counted stays counted only once the supervisor has been told.
  Status Tell(PacketType type, const std::string& key, ByteSpan state, int fd);

  const Fd socket_;
  std::uint64_t epoch_ = 0;
  bool restarted_ = false;
  Secret secret_{};
  std::size_t max_descriptors_ = 0;
  std::size_t max_state_bytes_ = 0;
  mutable std::mutex mutex_;  // guards what follows and the order on the socket
  std::unordered_map<std::string, Count> kept_;
  std::size_t state_bytes_ = 0;
  std::deque<std::string> dropped_;  // keys of which the supervisor, which was slow, does not know
  bool stuck_ = false;               // the last packet did not go for as long as one is waited for
};

}  // namespace rdfs::server
