#include "transport/base/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace rdfs {
namespace {

using Peers = SharedMemory::Peers;

TEST(SharedMemory, ASizeOfOddBytesIsRoundedUpAndZeroed) {
  auto memory = SharedMemory::Create("t", 5000, Peers::kMayWrite);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  EXPECT_EQ((*memory)->size(), 8192U);
  for (const std::byte b : (*memory)->bytes()) ASSERT_EQ(b, std::byte{0});
  EXPECT_FALSE(SharedMemory::Create("t", 0, Peers::kMayWrite).ok());
}

TEST(SharedMemory, ALimitOfFileSizesIsNamed) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = SharedMemory::Create("t", 8192, Peers::kMayWrite).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(status.message().find("raise `ulimit -f`"), std::string::npos) << status.message();
}

TEST(SharedMemory, WhatAPeerMayOnlyReadCannotBeMappedForWritingEvenReopened) {
  auto memory = SharedMemory::Create("t", 4096, Peers::kReadOnly);
  ASSERT_TRUE(memory.ok());
  (*memory)->bytes()[0] = std::byte{7};  // our own mapping stays writable
  const Fd reopened(
      open(("/proc/self/fd/" + std::to_string((*memory)->fd())).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(reopened.valid());
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reopened.get(), 0), MAP_FAILED);
  EXPECT_LT(pwrite(reopened.get(), "x", 1, 0), 0);
  auto adopted = SharedMemory::Adopt(Fd(dup(reopened.get())), 4096, Peers::kReadOnly);
  ASSERT_TRUE(adopted.ok()) << adopted.status().ToString();
  EXPECT_EQ((*adopted)->bytes()[0], std::byte{7});
}

TEST(SharedMemory, RefusesWhatThePeerCouldStillShrinkOrWhatHasAnotherSize) {
  const int unsealed = memfd_create("u", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, 4096), 0);
  EXPECT_EQ(SharedMemory::Adopt(Fd(unsealed), 4096, Peers::kMayWrite).status().code(),
            Code::kProtocolError);
  auto memory = SharedMemory::Create("t", 4096, Peers::kMayWrite);
  ASSERT_TRUE(memory.ok());
  EXPECT_FALSE(SharedMemory::Adopt(Fd(dup((*memory)->fd())), 8192, Peers::kMayWrite).ok());
  EXPECT_FALSE(SharedMemory::Adopt(Fd(dup((*memory)->fd())), 4096, Peers::kReadOnly).ok());
}

}  // namespace
}  // namespace rdfs
