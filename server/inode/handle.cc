#include "server/inode/handle.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "server/command/new_file.h"
#include "transport/base/fd.h"
#include "transport/base/random.h"

namespace rdfs::server {
namespace {

constexpr std::size_t kTagBytes = 8;
constexpr std::size_t kFixedBytes = kTagBytes + 1 + 8;
constexpr std::size_t kMaxPayload = fs::kMaxHandleBytes - kFixedBytes;  // 47
constexpr std::size_t kMaxScope = fs::kMaxHandleBytes - kTagBytes + fs::kMaxExportNameBytes;

// What name_to_handle_at(2) wants: a header and room behind it.
struct KernelHandle {
  alignas(file_handle) std::array<std::byte, sizeof(file_handle) + MAX_HANDLE_SZ> bytes{};
  file_handle* get() { return reinterpret_cast<file_handle*>(bytes.data()); }
};

void StoreNumber(const struct statx& stat, NativeHandle& out) {
  out.kind = NativeHandle::Kind::kNumber;
  ByteWriter writer(out.bytes);
  writer.Write(Le64(stat.stx_ino));
  writer.Write(LeI64(stat.stx_btime.tv_sec));
  writer.Write(Le32(stat.stx_btime.tv_nsec));
  out.size = writer.size();
}

void StoreKernelHandle(const file_handle& handle, NativeHandle& out) {
  const auto payload = std::as_bytes(std::span(handle.f_handle, handle.handle_bytes));
  const Le32 type(static_cast<std::uint32_t>(handle.handle_type));
  ByteWriter writer(out.bytes);
  if (sizeof(Le32) + payload.size() <= kMaxPayload) {
    out.kind = NativeHandle::Kind::kFileHandle;
    writer.Write(type);
    writer.WriteBytes(payload);
  } else {
    out.kind = NativeHandle::Kind::kHashed;
    std::array<unsigned char, 32> digest{};
    crypto_generichash(digest.data(), digest.size(),
                       reinterpret_cast<const unsigned char*>(handle.f_handle), handle.handle_bytes,
                       nullptr, 0);
    writer.Write(type);
    writer.WriteBytes(std::as_bytes(std::span(digest)));
  }
  out.size = writer.size();
}

void WriteNative(ByteWriter& writer, const NativeHandle& native) {
  writer.Write(Le<std::uint8_t>(static_cast<std::uint8_t>(native.kind)));
  writer.Write(Le64(native.device));
  writer.WriteBytes(ByteSpan(native.bytes).first(native.size));
}

Result<HandleSecret> Fail(std::string_view what, const std::string& path) {
  return Status::FromErrno(errno, std::string(what) + " " + path);
}

}  // namespace

HandleSecret HandleSecret::Random() {
  HandleSecret secret;
  FillRandom(std::as_writable_bytes(std::span(secret.bytes_)));
  return secret;
}

Result<HandleSecret> HandleSecret::LoadOrCreate(const std::string& path) {
  HandleSecret secret = Random();
  std::error_code ignored;  // what is missing shows in open
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  RDFS_ASSIGN_OR_RETURN(
      const bool made,
      MakeFile(path, std::as_bytes(std::span<const unsigned char>(secret.bytes_))));
  if (made) return secret;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return Fail("cannot open", path);
  if (::read(file.get(), secret.bytes_.data(), kBytes) != static_cast<ssize_t>(kBytes)) {
    return Status(Code::kErrno, EIO, path + " is too short to be a handle secret; remove it");
  }
  return secret;
}

std::uint64_t DeviceOf(const struct statx& stat) {
  return makedev(stat.stx_dev_major, stat.stx_dev_minor);
}

NativeHandle NativeHandle::Of(int fd, const struct statx& stat) {
  NativeHandle out;
  out.device = DeviceOf(stat);
  KernelHandle kernel;
  kernel.get()->handle_bytes = MAX_HANDLE_SZ;
  int mount_id = 0;
  if (::name_to_handle_at(fd, "", kernel.get(), &mount_id, AT_EMPTY_PATH) == 0) {
    StoreKernelHandle(*kernel.get(), out);
    out.mount = mount_id;
  } else {
    StoreNumber(stat, out);
  }
  return out;
}

bool IsSameInode(const NativeHandle& one, const NativeHandle& other) {
  const auto kind = [](const NativeHandle& handle) {
    return handle.kind == NativeHandle::Kind::kOtherMount ? NativeHandle::Kind::kFileHandle
                                                          : handle.kind;
  };
  return kind(one) == kind(other) && one.device == other.device && one.size == other.size &&
         one.bytes == other.bytes;
}

HandleCodec::HandleCodec(const HandleSecret& secret, std::string_view export_name,
                         const NativeHandle& root)
    : secret_(secret), scope_(kMaxScope) {
  ByteWriter writer(scope_);
  WriteNative(writer, root);
  writer.WriteBytes(AsBytes(export_name));
  scope_.resize(writer.size());
}

std::array<std::byte, 8> HandleCodec::Tag(ByteSpan body) const {
  static_assert(crypto_shorthash_KEYBYTES == HandleSecret::kBytes);
  static_assert(crypto_shorthash_BYTES == kTagBytes);
  std::array<std::byte, fs::kMaxHandleBytes + kMaxScope> buffer{};
  ByteWriter writer(buffer);
  writer.WriteBytes(body);
  writer.WriteBytes(scope_);
  std::array<std::byte, kTagBytes> tag{};
  crypto_shorthash(reinterpret_cast<unsigned char*>(tag.data()),
                   reinterpret_cast<const unsigned char*>(buffer.data()), writer.size(),
                   secret_.bytes().data());
  return tag;
}

fs::Handle HandleCodec::Tagged(ByteSpan body) const {
  std::array<std::byte, fs::kMaxHandleBytes> buffer{};
  ByteWriter writer(buffer);
  writer.WriteBytes(Tag(body));
  writer.WriteBytes(body);
  return *fs::Handle::FromBytes(writer.written());
}

fs::Handle HandleCodec::Encode(const NativeHandle& native) const {
  std::array<std::byte, fs::kMaxHandleBytes - kTagBytes> body{};
  ByteWriter writer(body);
  WriteNative(writer, native);
  return Tagged(writer.written());
}

std::optional<NativeHandle> HandleCodec::Decode(const fs::Handle& handle) const {
  if (handle.bytes().size() < kFixedBytes) return std::nullopt;
  const ByteSpan body = handle.bytes().subspan(kTagBytes);
  const auto tag = Tag(body);
  if (sodium_memcmp(tag.data(), handle.bytes().data(), tag.size()) != 0) return std::nullopt;
  ByteReader reader(body);
  NativeHandle native;
  native.kind = static_cast<NativeHandle::Kind>(std::uint8_t{reader.Read<Le<std::uint8_t>>()});
  native.device = reader.Read<Le64>();
  native.size = reader.remaining();
  std::memcpy(native.bytes.data(), reader.rest().data(), native.size);
  return native;
}

fs::Handle HandleCodec::Own(const fs::Handle& handle) const {
  return Tagged(handle.bytes().subspan(kTagBytes));
}

int OpenNativeHandle(int mount, const NativeHandle& native, int flags) {
  if (native.kind != NativeHandle::Kind::kFileHandle) {
    errno = ESTALE;
    return -1;
  }
  ByteReader reader(ByteSpan(native.bytes).first(native.size));
  KernelHandle kernel;
  kernel.get()->handle_type = static_cast<int>(std::uint32_t{reader.Read<Le32>()});
  kernel.get()->handle_bytes = static_cast<unsigned>(reader.remaining());
  std::memcpy(kernel.get()->f_handle, reader.rest().data(), reader.remaining());
  return ::open_by_handle_at(mount, kernel.get(), flags);
}

}  // namespace rdfs::server
