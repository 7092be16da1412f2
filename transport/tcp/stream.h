// ByteStream: an ordered, reliable byte stream under a tcp connection or a vestibule: a TCP socket,
// a UNIX socket, ssh's two pipes, or TLS over any of these.
//
// Owned by one Connection, used by its thread. Never blocks but where it says so.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::transport::tcp {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Reads at most out.size() bytes; 0 when there is nothing now. kDisconnected at the end.
  virtual Result<std::size_t> Read(MutableByteSpan out) = 0;
  // As Read, into `parts` in their order. This one fills the first that is not empty.
  virtual Result<std::size_t> ReadParts(std::span<const iovec> parts);
  // As ReadParts, but when there is nothing it sleeps until there is, for kNap at most: one system
  // call where looking, poll(2) and reading are three. Only where CanNap(): plain sockets.
  static constexpr std::chrono::milliseconds kNap{20};
  [[nodiscard]] virtual bool CanNap() const { return false; }
  virtual Result<std::size_t> NapAndRead(std::span<const iovec> parts) { return ReadParts(parts); }
  // Writes what the wire takes of `parts` now and returns how much, 0 when it takes nothing.
  virtual Result<std::size_t> Write(std::span<const iovec> parts) = 0;
  // Bytes that Read would return without a system call (TLS keeps some): fd() does not tell of
  // them.
  [[nodiscard]] virtual bool HasBufferedInput() const = 0;
  // TLS may have to write before it can read and the other way round; poll for what these say.
  [[nodiscard]] virtual short read_events() const = 0;  // on read_fd()
  [[nodiscard]] virtual short write_events()
      const = 0;  // on write_fd(), while Write returned short
  [[nodiscard]] virtual int read_fd() const = 0;
  [[nodiscard]] virtual int write_fd() const = 0;  // the same for sockets
  [[nodiscard]] virtual bool encrypted() const = 0;
  [[nodiscard]] virtual bool same_host() const { return false; }  // false where it cannot be told
  // False while a handshake (StartTls) goes on under Read and Write, be it of nothing.
  [[nodiscard]] virtual bool established() const { return true; }
  [[nodiscard]] virtual std::string peer() const = 0;  // "10.0.0.2:7337", "uid 1000", "ssh"
  // Whether whoever answers at the other end needs the very processor that this thread runs on:
  // then nothing comes while this thread spins. True where it cannot be told.
  [[nodiscard]] virtual bool PeerNeedsThisProcessor() const { return true; }
  // Says that nothing more will be written (close_notify, SHUT_WR); best effort.
  virtual void Shutdown() = 0;
};

// Over one socket (TCP_NODELAY is set where it applies), or over a pair of pipes.
std::unique_ptr<ByteStream> MakeSocketStream(Fd socket, std::string peer);
std::unique_ptr<ByteStream> MakePipeStream(Fd read_fd, Fd write_fd, std::string peer);

// TLS 1.3 (RFC 8446) over `inner` with the external PSK `psk` (32 bytes, fresh for this stream:
// both ends derived it from an authenticated key exchange), psk_dhe_ke, no early data, no
// certificates. Blocks until the handshake is done or `deadline`. kAuthenticationFailed when the
// PSKs differ.
enum class TlsRole { kClient, kServer };
// Behind so many records a sender changes its key: well before the 2^24.5 full ones that RFC 8446,
// 5.5, gives a key of AES-GCM.
inline constexpr std::uint64_t kTlsRecordsOfAKey = std::uint64_t{1} << 23U;
Result<std::unique_ptr<ByteStream>> WrapInTls(std::unique_ptr<ByteStream> inner, TlsRole role,
                                              ByteSpan psk, Deadline deadline,
                                              std::uint64_t records_of_a_key = kTlsRecordsOfAKey);
// The same without blocking: the handshake goes on under Read and Write, which move nothing before
// it is done and fail as WrapInTls does. For a server, which waits for no single peer.
Result<std::unique_ptr<ByteStream>> StartTls(std::unique_ptr<ByteStream> inner, TlsRole role,
                                             ByteSpan psk);

}  // namespace rdfs::transport::tcp
