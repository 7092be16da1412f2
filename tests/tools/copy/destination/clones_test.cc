#include "tools/copy/destination/clones.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace rdfs::copy {
namespace {

TEST(Clones, OneOddFileDoesNotEndThem) {
  Clones clones;
  for (const int error : {EINVAL, EPERM, ETXTBSY, ENOSPC, EIO, EINTR, EAGAIN, EBADF}) {
    clones.Failed(1, 2, error);
    EXPECT_TRUE(clones.MayBe(1, 2)) << error;
  }
}

TEST(Clones, WhatTheFileSystemsCannotIsRememberedOfThese) {
  for (const int error : {ENOTTY, EOPNOTSUPP, ENOSYS, EXDEV}) {
    Clones clones;
    clones.Failed(1, 2, error);
    EXPECT_FALSE(clones.MayBe(1, 2)) << error;
    EXPECT_TRUE(clones.MayBe(1, 1)) << error;
    EXPECT_TRUE(clones.MayBe(2, 1)) << error;
    clones.Failed(0, 0, error);
    EXPECT_FALSE(clones.MayBe(1, 2) || clones.MayBe(0, 0)) << error;
  }
}

}  // namespace
}  // namespace rdfs::copy
