#include "server/inode/handle.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <random>

#include "server/ops/attr.h"
#include "tests/server/temp_dir.h"
#include "transport/base/fd.h"

namespace rdfs::server {
namespace {

NativeHandle HandleOf(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_PATH));
  struct statx stat {};
  EXPECT_EQ(StatFd(fd.get(), stat), 0);
  return NativeHandle::Of(fd.get(), stat);
}

TEST(Handle, ComesBackAsItWas) {
  const TempDir dir;
  const NativeHandle native = HandleOf(dir.path());
  const HandleCodec codec(HandleSecret::Random(), "home", {});
  const auto decoded = codec.Decode(codec.Encode(native));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->kind, native.kind);
  EXPECT_EQ(decoded->device, native.device);
  EXPECT_EQ(decoded->bytes, native.bytes);
  EXPECT_EQ(codec.Encode(native), codec.Encode(native));
}

TEST(Handle, AnotherExportOrSecretDoesNotAcceptIt) {
  const TempDir dir;
  const HandleSecret secret = HandleSecret::Random();
  const fs::Handle handle = HandleCodec(secret, "home", {}).Encode(HandleOf(dir.path()));
  EXPECT_FALSE(HandleCodec(secret, "other", {}).Decode(handle).has_value());
  EXPECT_FALSE(HandleCodec(HandleSecret::Random(), "home", {}).Decode(handle).has_value());
}

// The configuration has given the name to another directory.
TEST(Handle, OfAnEarlierDirectoryByThatNameIsNotAccepted) {
  const TempDir before, now;
  const HandleSecret secret = HandleSecret::Random();
  const HandleCodec codec(secret, "home", HandleOf(before.path()));
  const fs::Handle handle = codec.Encode(HandleOf(before.path()));
  EXPECT_TRUE(HandleCodec(secret, "home", HandleOf(before.path())).Decode(handle).has_value());
  EXPECT_FALSE(HandleCodec(secret, "home", HandleOf(now.path())).Decode(handle).has_value());
}

TEST(Handle, OfAnInodeIsThatByWhicheverMount) {
  const TempDir dir, another;
  const NativeHandle native = HandleOf(dir.path());
  NativeHandle by_other = native;
  by_other.mount = native.mount + 1;
  EXPECT_TRUE(IsSameInode(native, by_other));
  EXPECT_FALSE(IsSameInode(native, HandleOf(another.path())));
  if (native.kind != NativeHandle::Kind::kFileHandle) return;
  by_other.kind = NativeHandle::Kind::kOtherMount;
  EXPECT_TRUE(IsSameInode(native, by_other));
  EXPECT_EQ(OpenNativeHandle(-1, by_other, O_PATH), -1);
  EXPECT_EQ(errno, ESTALE);
}

TEST(Handle, OfAnotherExportCanBeHadFromThatOne) {
  const TempDir dir;
  const HandleSecret secret = HandleSecret::Random();
  const HandleCodec home(secret, "home", {}), other(secret, "other", {});
  const NativeHandle native = HandleOf(dir.path());
  EXPECT_EQ(other.Own(home.Encode(native)), other.Encode(native));
  EXPECT_EQ(home.Own(home.Encode(native)), home.Encode(native));
}

TEST(Handle, EveryChangedBitIsNoticed) {
  const TempDir dir;
  const HandleCodec codec(HandleSecret::Random(), "home", {});
  const fs::Handle handle = codec.Encode(HandleOf(dir.path()));
  for (std::size_t bit = 0; bit < handle.bytes().size() * 8; ++bit) {
    std::vector<std::byte> bytes(handle.bytes().begin(), handle.bytes().end());
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(codec.Decode(*fs::Handle::FromBytes(bytes)).has_value()) << "bit " << bit;
  }
  for (std::size_t size = 1; size < handle.bytes().size(); ++size) {
    EXPECT_FALSE(codec.Decode(*fs::Handle::FromBytes(handle.bytes().first(size))).has_value());
  }
}

TEST(Handle, SecretIsKeptInAPrivateFile) {
  const TempDir dir;
  const std::string path = dir / "state/rdfs/secret";
  const auto first = HandleSecret::LoadOrCreate(path);
  const auto second = HandleSecret::LoadOrCreate(path);
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first->bytes(), second->bytes());
  struct stat stat {};
  ASSERT_EQ(::stat(path.c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 0777U, 0600U);
}

}  // namespace
}  // namespace rdfs::server
