// Key: the secret that two ends share, and where it comes from.
//
// A value that wipes its memory when it dies. Keys a person types may be short: they are only ever
// used through the PAKE (pake.h), so that who listens or guesses gets one try a connection.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::transport {

class Key {
 public:
  Key() = default;  // no key: only for a peer that asks for none
  explicit Key(ByteSpan bytes) : bytes_(bytes.begin(), bytes.end()) {}
  explicit Key(std::string_view text) : Key(AsBytes(text)) {}
  Key(const Key&) = default;
  Key(Key&&) noexcept = default;
  // By value, so that what was held before is wiped with `other`.
  Key& operator=(Key other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  ~Key();

  // 256 random bits, as 64 hexadecimal digits, so that it can be printed, typed and put in a file.
  static Key Random();
  // The first line of a file, without its end. Refuses an empty one, one above 1 KiB, and a file
  // that others than its owner may read (the message says `chmod 600 FILE`). "~/" in front is the
  // home directory.
  static Result<Key> FromFile(const std::string& file);
  // The next line of a descriptor; nothing behind that line is consumed, so that a key may be
  // followed by other input (ssh's stdin). Blocks until the line has ended.
  static Result<Key> FromFd(int fd);

  static constexpr std::size_t kMaxBytes = 1024;

  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  [[nodiscard]] ByteSpan bytes() const { return bytes_; }
  [[nodiscard]] std::string_view text() const { return AsText(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace rdfs::transport
