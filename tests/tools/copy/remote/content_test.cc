#include "tools/copy/remote/content.h"

#include <gtest/gtest.h>

#include "tests/tools/copy/temp_tree.h"
#include "tools/pipe/wire/digest.h"

namespace rdfs::copy {
namespace {

class CopyContent : public testing::Test {
 protected:
  Result<Digest> DigestOf(const std::string& name, std::uint64_t size) {
    return ContentDigest(*Here()->Open(tree_ / name, O_RDONLY), size, stop_);
  }
  TempTree tree_;
  pipe::StopFlag stop_{false};
};

TEST_F(CopyContent, TheDigestIsOfTheBytes) {
  for (const std::size_t size : {0U, 1U, (1U << 20U) - 1, 1U << 20U, (1U << 20U) + 1, 5000000U}) {
    const std::string text(size, 'x');
    tree_.Write("a", text);
    tree_.Write("b", text + "more");
    ASSERT_TRUE(DigestOf("a", size).ok());
    EXPECT_EQ(*DigestOf("a", size), *DigestOf("b", size)) << size;
    if (size == 0) continue;
    std::string other = text;
    other.back() = 'y';
    tree_.Write("b", other);
    EXPECT_NE(*DigestOf("a", size), *DigestOf("b", size)) << size;
  }
}

TEST_F(CopyContent, AShorterFileHasNone) {
  tree_.Write("a", "abc");
  EXPECT_EQ(DigestOf("a", 4).status().errno_value(), ENODATA);
  stop_ = true;
  EXPECT_EQ(DigestOf("a", 3).status().errno_value(), EINTR);
}

TEST_F(CopyContent, WhatWasWrittenIsReadAgain) {
  auto destination = Destination::Open(tree_.path(), {});
  ASSERT_TRUE(destination.ok() && (*destination)->AddTarget(0, "f").ok());
  Entry entry;
  entry.mode = 0600;
  auto file = (*destination)->Begin(entry);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::string text = "0123456789";
  ASSERT_TRUE((*file)->Write(5, AsBytes(text)).ok());
  const Written good{5, 10, pipe::DigestOf(AsBytes(text))};
  EXPECT_TRUE(CheckWritten(**file, 20, {&good, 1}, stop_).ok());
  Written bad = good;
  bad.offset = 4;
  EXPECT_EQ(CheckWritten(**file, 20, {&bad, 1}, stop_).errno_value(), EIO);
  // Cut off.
  EXPECT_EQ(CheckWritten(**file, 14, {&good, 1}, stop_).errno_value(), EIO);
}

}  // namespace
}  // namespace rdfs::copy
