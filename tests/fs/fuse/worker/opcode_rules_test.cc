#include "fs/fuse/worker/opcode_rules.h"

#include <fcntl.h>
#include <linux/fuse.h>

#include "fs/fuse/content/short_reads.h"
#include "fs/fuse/content/writes_behind.h"
#include "tests/fs/fuse/buffered_test.h"

namespace rdfs::fs::fuse {
namespace {

constexpr NodeId kNode = 7;

class OpcodeRulesTest : public BufferedTest {
 protected:
  bool IsShort(std::size_t size) {
    fuse_read_in read{};
    read.size = static_cast<std::uint32_t>(size);
    return IsShortRead(MessageOf(FUSE_READ, kNode, read));
  }
  bool OpenChanges(int flags) {
    fuse_open_in open{};
    open.flags = static_cast<std::uint32_t>(flags);
    return Changes(MessageOf(FUSE_OPEN, kNode, open));
  }
};

TEST_F(OpcodeRulesTest, AnOpenChangesWhatItTruncates) {
  EXPECT_TRUE(OpenChanges(O_WRONLY | O_TRUNC));
  EXPECT_FALSE(OpenChanges(O_WRONLY));
  EXPECT_FALSE(Changes(MessageOf(FUSE_OPEN, kNode))) << "cut off";
}

TEST_F(OpcodeRulesTest, WhatMakesAFileShorter) {
  fuse_setattr_in set{};
  set.valid = FATTR_MODE;
  EXPECT_FALSE(Cuts(MessageOf(FUSE_SETATTR, kNode, set)));
  set.valid |= FATTR_SIZE;
  EXPECT_TRUE(Cuts(MessageOf(FUSE_SETATTR, kNode, set)));
  fuse_open_in open{};
  EXPECT_FALSE(Cuts(MessageOf(FUSE_OPEN, kNode, open)));
  open.flags = O_WRONLY | O_TRUNC;
  EXPECT_TRUE(Cuts(MessageOf(FUSE_OPEN, kNode, open)));
  EXPECT_FALSE(Cuts(MessageOf(FUSE_WRITE, kNode)));
}

TEST_F(OpcodeRulesTest, WhatChanges) {
  for (const std::uint32_t opcode : {FUSE_WRITE, FUSE_CREATE, FUSE_UNLINK, FUSE_SETATTR,
                                     FUSE_RENAME2, FUSE_COPY_FILE_RANGE, FUSE_REMOVEXATTR}) {
    EXPECT_TRUE(Changes(MessageOf(opcode, kNode))) << opcode;
  }
  for (const std::uint32_t opcode :
       {FUSE_READ, FUSE_LOOKUP, FUSE_GETATTR, FUSE_FSYNC, FUSE_RELEASE}) {
    EXPECT_FALSE(Changes(MessageOf(opcode, kNode))) << opcode;
  }
}

TEST_F(OpcodeRulesTest, WhoseWritesAreNotOvertaken) {
  EXPECT_EQ(Follows(MessageOf(FUSE_READ, kNode)), kNode);
  EXPECT_EQ(Follows(MessageOf(FUSE_RELEASE, kNode)), kNode);
  EXPECT_EQ(Follows(MessageOf(FUSE_READDIRPLUS, kNode)), WritesBehind::kAnyNode);
  EXPECT_EQ(Follows(MessageOf(FUSE_RENAME, kNode)), WritesBehind::kAnyNode);
  EXPECT_EQ(Follows(MessageOf(FUSE_WRITE, kNode)), std::nullopt);
  EXPECT_EQ(Follows(MessageOf(FUSE_MKDIR, kNode)), std::nullopt);
}

TEST_F(OpcodeRulesTest, ShortReads) {
  EXPECT_TRUE(IsShort(0));
  EXPECT_TRUE(IsShort(ShortReads::kLongest));
  EXPECT_FALSE(IsShort(ShortReads::kLongest + 1));
  EXPECT_FALSE(IsShortRead(MessageOf(FUSE_READ, kNode))) << "cut off";
  fuse_write_in write{};
  write.size = 1;
  EXPECT_FALSE(IsShortRead(MessageOf(FUSE_WRITE, kNode, write)));
}

}  // namespace
}  // namespace rdfs::fs::fuse
