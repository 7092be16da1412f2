// Handles: how the server names an inode for life, and why a peer cannot make one up.
//
// A handle's bytes are [tag 8][kind 1][device 8][payload]: the payload is what name_to_handle_at(2)
// says (inode and generation), or where a file system has no handles the inode number and birth
// time, or a hash where the file system's own handle does not fit into 64 bytes. The tag is a
// SipHash-2-4 of the rest and of the export's name, keyed with a secret that only this server has.
//
// Why a tag and not a check by path: open_by_handle_at(2) opens any inode of the file system, so an
// export that is not a whole file system could be left by guessing inode numbers, which are small.
// Finding out whether an inode lies below the root would need its path, which a file does not have
// (hard links, and a walk up for each request). With the tag the server opens only what it has once
// found below the export itself, one hash a request. What is renamed out of the export on the
// server afterwards stays reachable to who knew it, as with any open descriptor.
//
// The secret must outlive the server for handles to do so: see HandleSecret::LoadOrCreate.
//
// Pure apart from LoadOrCreate and NativeHandle; any thread.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/protocol.h"
#include "transport/base/bytes.h"
#include "transport/base/status.h"

namespace rdfs::server {

// Which inode, among those that exist now (numbers are used again once an inode is gone).
struct InodeKey {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const InodeKey&, const InodeKey&) = default;
};
struct InodeKeyHash {
  std::size_t operator()(const InodeKey& key) const noexcept {
    return std::hash<std::uint64_t>()(key.inode * 0x9e3779b97f4a7c15U ^ key.device);
  }
};

class HandleSecret {
 public:
  static constexpr std::size_t kBytes = 16;
  static HandleSecret Random();
  // From `path`, which is made with mode 0600 (its folders too) when it is missing. Errors: kErrno;
  // then handles do not outlive this process, and clients look files up again by name.
  static Result<HandleSecret> LoadOrCreate(const std::string& path);

  [[nodiscard]] const std::array<unsigned char, kBytes>& bytes() const { return bytes_; }

 private:
  std::array<unsigned char, kBytes> bytes_{};
};

// What a file system says about an inode's identity.
struct NativeHandle {
  enum class Kind : std::uint8_t {
    kFileHandle = 1,  // can be opened by open_by_handle_at(2)
    kHashed = 2,      // a file handle too long for ours
    kNumber = 3,      // inode number and birth time
    // A file handle, of what was reached by a read-only mount below the export's own: by that one
    // it might be writable. Never opened by handle.
    kOtherMount = 4,
  };
  Kind kind = Kind::kNumber;
  std::uint64_t device = 0;
  std::array<std::byte, 48> bytes{};  // kFileHandle: Le32 type, then the handle's bytes
  std::size_t size = 0;
  int mount = -1;  // by which it was reached, where it is known; no part of the handle

  // Of the inode that `fd` (O_PATH will do) refers to; `stat` is its statx. Never fails, and never
  // kOtherMount.
  static NativeHandle Of(int fd, const struct statx& stat);
};
// Whether both are of one inode, by whichever mount it was reached.
bool IsSameInode(const NativeHandle& one, const NativeHandle& other);
std::uint64_t DeviceOf(const struct statx& stat);

class HandleCodec {
 public:
  // `root`: of the export's directory. Handles of another one, exported by this name earlier, are
  // none of its own.
  HandleCodec(const HandleSecret& secret, std::string_view export_name, const NativeHandle& root);

  [[nodiscard]] fs::Handle Encode(const NativeHandle& native) const;
  // Nothing when this server did not issue these bytes for this export.
  [[nodiscard]] std::optional<NativeHandle> Decode(const fs::Handle& handle) const;
  // The handle here of what has `handle`, which this server issued, in any export.
  [[nodiscard]] fs::Handle Own(const fs::Handle& handle) const;

 private:
  [[nodiscard]] std::array<std::byte, 8> Tag(ByteSpan body) const;
  [[nodiscard]] fs::Handle Tagged(ByteSpan body) const;
  HandleSecret secret_;
  std::vector<std::byte> scope_;  // what a tag is over besides the handle
};

// Opens the inode of a kFileHandle beneath `mount` (any descriptor of that file system). Needs
// CAP_DAC_READ_SEARCH in the calling thread. Returns -1 and sets errno.
int OpenNativeHandle(int mount, const NativeHandle& native, int flags);

}  // namespace rdfs::server
