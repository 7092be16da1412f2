// Records and the order that they must have: the bytes as PROTOCOL.md says, and what no correct
// peer sends.
#include "tools/copy/remote/records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/hex.h"

namespace rdfs::copy {
namespace {

Entry SomeFile(const std::string& path, std::uint64_t size) {
  Entry entry;
  entry.source = 1;
  entry.path = path;
  entry.mode = 04755;
  entry.uid = 1000;
  entry.gid = 100;
  entry.atime = {-1, 999'999'999};
  entry.mtime = {0x0102030405, 7};
  entry.size = size;
  entry.id = {0xfe01, 0x1234};
  return entry;
}

Entry Directory(const std::string& path) {
  Entry entry = SomeFile(path, 0);
  entry.kind = Kind::kDirectory;
  return entry;
}

class CopyRecords : public testing::Test {
 protected:
  // A whole file with these bytes.
  Status AddWhole(const Entry& entry, std::uint64_t number, std::string_view text) {
    return writer_.AddWhole(entry, number, 0, [&](MutableByteSpan place) -> Result<std::size_t> {
      const std::size_t length = std::min(place.size(), text.size());
      std::memcpy(place.data(), text.data(), length);
      return length;
    });
  }
  std::vector<Record> ReadAll(ByteSpan batch, Status* why = nullptr) {
    std::vector<Record> out;
    BatchReader reader(batch);
    for (;;) {
      auto record = reader.Next();
      if (!record.ok() && why != nullptr) *why = record.status();
      if (!record.ok() || !*record) return out;
      out.push_back(**std::move(record));
    }
  }

  std::vector<std::byte> slot_ = std::vector<std::byte>(64 << 10);
  BatchWriter writer_{slot_};
};

TEST_F(CopyRecords, GoldenWholeFile) {
  Entry entry = SomeFile("d/f", 3);
  entry.links = 2;
  entry.xattrs = {{"user.a", "v"}};
  ASSERT_TRUE(AddWhole(entry, 5, "xyz").ok());
  EXPECT_EQ(ToHex(writer_.written()),
            "01"
            "00"
            "0100"
            "73000000"
            "01"
            "000000"
            "ed090000"
            "e8030000"
            "64000000"
            "01000000"
            "00000000"
            "00000000"
            "02000000"
            "0500000000000000"
            "0300000000000000"
            "01fe000000000000"
            "3412000000000000"
            "ffffffffffffffff"
            "ffc99a3b"
            "0504030201000000"
            "07000000"
            "01000000"
            "0300"
            "642f66"
            "0000"
            "0600"
            "757365722e61"
            "01000000"
            "76"
            "78797a");
  const auto records = ReadAll(writer_.written());
  ASSERT_EQ(records.size(), 1U);
  const auto& file = std::get<EntryRecord>(records[0]);
  EXPECT_EQ(file.entry.path, "d/f");
  EXPECT_EQ(file.entry.atime.tv_sec, -1);
  EXPECT_EQ(file.entry.mtime.tv_sec, 0x0102030405);
  EXPECT_EQ(file.entry.xattrs, entry.xattrs);
  EXPECT_EQ(file.entry.id, entry.id);
  EXPECT_TRUE(file.whole && file.entry.links == 2 && !file.no_data);
  EXPECT_EQ(AsText(file.content), "xyz");
}

TEST_F(CopyRecords, GoldenOthers) {
  ASSERT_TRUE(writer_.AddLeave(2, "d"));
  const MutableByteSpan piece = writer_.AddPiece(9, 0x100000, 2);
  ASSERT_EQ(piece.size(), 2U);
  piece[0] = piece[1] = std::byte{'p'};
  ASSERT_TRUE(writer_.AddFileEnd({9, 0x100002, 2, true}));
  EXPECT_EQ(ToHex(writer_.written()),
            "02"
            "00"
            "0000"
            "07000000"
            "02000000"
            "0100"
            "64"
            "03"
            "00"
            "0000"
            "12000000"
            "0900000000000000"
            "0000100000000000"
            "7070"
            "04"
            "00"
            "0100"
            "18000000"
            "0900000000000000"
            "0200100000000000"
            "0200000000000000");
  const auto records = ReadAll(writer_.written());
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(std::get<LeaveRecord>(records[0]).entry.path, "d");
  EXPECT_EQ(AsText(std::get<PieceRecord>(records[1]).content), "pp");
  EXPECT_TRUE(std::get<FileEndRecord>(records[2]).given_up);
}

TEST_F(CopyRecords, AFileThatShrankIsAsLongAsWhatWasRead) {
  ASSERT_TRUE(AddWhole(SomeFile("f", 1000), 0, "short").ok());
  ASSERT_TRUE(AddWhole(SomeFile("g", 2), 1, "longer than told").ok());
  const auto records = ReadAll(writer_.written());
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(AsText(std::get<EntryRecord>(records[0]).content), "short");
  EXPECT_EQ(std::get<EntryRecord>(records[0]).entry.size, 5U);
  EXPECT_EQ(AsText(std::get<EntryRecord>(records[1]).content), "lo");
}

TEST_F(CopyRecords, WhatDoesNotFitLeavesNothing) {
  std::uint64_t number = 0;
  while (AddWhole(SomeFile("f", 1000), number, std::string(1000, 'x')).ok()) ++number;
  EXPECT_EQ(AddWhole(SomeFile("f", 1000), number, "x").code(), Code::kBusy);
  EXPECT_TRUE(writer_.AddPiece(0, 0, writer_.room()).empty());
  EXPECT_FALSE(writer_.Add(SomeFile(std::string(writer_.room(), 'n'), 0), number, 0));
  EXPECT_EQ(ReadAll(writer_.written()).size(), number);
  EXPECT_FALSE(writer_
                   .AddWhole(SomeFile("f", 1), number, 0,
                             [](MutableByteSpan) -> Result<std::size_t> {
                               return Status(Code::kErrno, EIO, "bad disk");
                             })
                   .ok());
  EXPECT_EQ(ReadAll(writer_.written()).size(), number);
}

TEST_F(CopyRecords, OffersAndAnswers) {
  ASSERT_TRUE(writer_.Add(SomeFile("f", 9), 0, EntryWire::kOffer));
  ASSERT_TRUE(writer_.Add(SomeFile("f", 9), 1, EntryWire::kAnswer));
  ASSERT_TRUE(writer_.AddLeave(0, "", true));
  const auto records = ReadAll(writer_.written());
  ASSERT_EQ(records.size(), 3U);
  EXPECT_TRUE(std::get<EntryRecord>(records[0]).offer);
  EXPECT_TRUE(std::get<EntryRecord>(records[1]).answer);
  EXPECT_TRUE(std::get<LeaveRecord>(records[2]).partial);
  RecordRules rules(2);
  EXPECT_TRUE(rules.Check(records[0]).ok());
  EXPECT_TRUE(rules.CheckEnd(1).ok()) << "an offer leaves nothing open";
  EXPECT_TRUE(rules.Check(records[1]).ok());
  EXPECT_FALSE(rules.CheckEnd(2).ok()) << "its answer does";
}

TEST_F(CopyRecords, OffersWithDigests) {
  Digest digest{};
  digest[0] = std::byte{7};
  ASSERT_TRUE(writer_.AddOffer(SomeFile("f", 9), 0, 0, digest));
  EXPECT_EQ(writer_.size(), BatchWriter::SizeOf(SomeFile("f", 9)) + sizeof(Digest));
  ASSERT_TRUE(writer_.AddOffer(SomeFile("g", 9), 1, 0, std::nullopt));
  const auto records = ReadAll(writer_.written());
  ASSERT_EQ(records.size(), 2U);
  EXPECT_TRUE(std::get<EntryRecord>(records[0]).offer);
  EXPECT_EQ(std::get<EntryRecord>(records[0]).digest, digest);
  EXPECT_EQ(std::get<EntryRecord>(records[1]).digest, std::nullopt);
}

TEST_F(CopyRecords, LargeFilesBringTheirChangeTime) {
  Entry entry = SomeFile("f", 1 << 20);
  entry.ctime = {5, 6};
  Digest digest{};
  digest[0] = std::byte{7};
  ASSERT_TRUE(writer_.AddOffer(entry, 0, EntryWire::kResumable, digest));
  EXPECT_EQ(writer_.size(), BatchWriter::SizeOf(entry) + sizeof(TimeWire) + sizeof(Digest));
  const std::string bytes = ToHex(writer_.written());
  EXPECT_EQ(bytes.substr(bytes.size() - 56), "050000000000000006000000" + ToHex(digest));
  constexpr std::uint16_t kFlags = EntryWire::kAnswer | EntryWire::kResumable | EntryWire::kGoesOn;
  ASSERT_TRUE(writer_.Add(entry, 1, kFlags));
  const auto records = ReadAll(writer_.written());
  ASSERT_EQ(records.size(), 2U);
  const auto& offer = std::get<EntryRecord>(records[0]);
  EXPECT_TRUE(offer.resumable && !offer.goes_on);
  EXPECT_EQ(offer.entry.ctime.tv_sec, 5);
  EXPECT_EQ(offer.entry.ctime.tv_nsec, 6);
  EXPECT_EQ(offer.digest, digest);
  EXPECT_TRUE(std::get<EntryRecord>(records[1]).goes_on);
}

TEST_F(CopyRecords, WhatGoesOnIsAnAnswer) {
  const auto accepts = [&](unsigned flags) {
    writer_.TruncateTo(0);
    Status why;
    EXPECT_TRUE(writer_.Add(SomeFile("f", 9), 0, static_cast<std::uint16_t>(flags)));
    return ReadAll(writer_.written(), &why).size() == 1;
  };
  EXPECT_TRUE(accepts(EntryWire::kAnswer | EntryWire::kResumable));
  EXPECT_FALSE(accepts(EntryWire::kAnswer | EntryWire::kGoesOn));
  EXPECT_FALSE(accepts(EntryWire::kOffer | EntryWire::kResumable | EntryWire::kGoesOn));
  EXPECT_FALSE(accepts(EntryWire::kResumable));
}

TEST_F(CopyRecords, SizeOfIsWhatItTakes) {
  Entry entry = SomeFile("some/path", 0);
  entry.xattrs = {{"user.a", "value"}, {"user.b", ""}};
  ASSERT_TRUE(writer_.Add(entry, 0, 0));
  EXPECT_EQ(writer_.size(), BatchWriter::SizeOf(entry));
}

// One entry, changed at one place: refused.
TEST_F(CopyRecords, HostileEntries) {
  Entry link = SomeFile("d/l", 0);
  link.kind = Kind::kSymlink;
  link.target = "/t";
  link.xattrs = {{"user.a", "v"}};
  ASSERT_TRUE(writer_.Add(link, 0, 0));
  const Bytes good(writer_.written().begin(), writer_.written().end());
  const auto refused = [&](std::size_t at, std::uint8_t value) {
    Bytes bad = good;
    bad[at] = std::byte{value};
    Status why;
    (void)ReadAll(bad, &why);
    return !why.ok();
  };
  EXPECT_FALSE(refused(2, 0)) << "this one is good";
  EXPECT_TRUE(refused(0, 0));
  EXPECT_TRUE(refused(0, 5)) << "an unknown record";
  EXPECT_TRUE(refused(1, 1)) << "not zero";
  EXPECT_TRUE(refused(2, 32)) << "unknown flags";
  EXPECT_TRUE(refused(2, 16)) << "a digest without an offer";
  EXPECT_TRUE(refused(2, 1)) << "a symlink with content";
  EXPECT_TRUE(refused(2, 2)) << "a later name of nothing";
  EXPECT_TRUE(refused(2, 4)) << "a symlink is offered";
  EXPECT_TRUE(refused(2, 8)) << "a symlink answers an offer";
  EXPECT_TRUE(refused(7, 0xff)) << "longer than the batch";
  EXPECT_TRUE(refused(8, 0));
  EXPECT_TRUE(refused(8, 8)) << "an unknown kind";
  EXPECT_TRUE(refused(8, 1)) << "a file with a target";
  EXPECT_TRUE(refused(14, 1)) << "bits that no mode has";
  EXPECT_TRUE(refused(8 + 47, 0x80)) << "a size that no file has: " << ToHex(good);
  EXPECT_TRUE(refused(8 + 87, 0xff)) << "nanoseconds";
  const std::size_t path = sizeof(RecordHeader) + sizeof(EntryWire);
  EXPECT_TRUE(refused(path, 0xff)) << "a path longer than the record";
  EXPECT_TRUE(refused(path + 2, '/')) << "an absolute path";
  EXPECT_TRUE(refused(path + 2, 0)) << "a NUL";
  EXPECT_TRUE(refused(path + 4, '/')) << "an empty component";
  EXPECT_TRUE(refused(path - 4, 2)) << "an attribute too many";
  EXPECT_TRUE(refused(path - 1, 0xff)) << "attributes without end";
  for (std::size_t size = 1; size < good.size(); ++size) {
    Status why;
    (void)ReadAll(ByteSpan(good).first(size), &why);
    EXPECT_FALSE(why.ok()) << size;
  }
}

TEST_F(CopyRecords, PathsThatLeadElsewhereAreRefused) {
  for (const std::string path :
       {"..", "../x", "a/..", "a/../../b", ".", "a/./b", "/etc/passwd", "a//b", "a/", "a/b/.."}) {
    BatchWriter writer(slot_);
    ASSERT_TRUE(writer.Add(SomeFile(path, 0), 0, 0));
    Status why;
    (void)ReadAll(writer.written(), &why);
    EXPECT_EQ(why.code(), Code::kProtocolError) << path;
    BatchWriter leave(slot_);
    ASSERT_TRUE(leave.AddLeave(0, path));
    Status left;
    (void)ReadAll(leave.written(), &left);
    EXPECT_EQ(left.code(), Code::kProtocolError) << path;
  }
}

TEST_F(CopyRecords, NoiseIsRefusedWithoutHarm) {
  std::mt19937 random(2);
  ASSERT_TRUE(writer_.Add(Directory("d"), 0, 0));
  ASSERT_TRUE(AddWhole(SomeFile("d/f", 100), 1, std::string(100, 'x')).ok());
  ASSERT_FALSE(writer_.AddPiece(1, 0, 50).empty());
  ASSERT_TRUE(writer_.AddLeave(1, "d"));
  const Bytes good(writer_.written().begin(), writer_.written().end());
  for (int round = 0; round < 20'000; ++round) {
    Bytes bad = good;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    RecordRules rules(2);
    for (const Record& record : ReadAll(bad)) {
      if (!rules.Check(record).ok()) break;
      if (const auto* entry = std::get_if<EntryRecord>(&record)) {
        EXPECT_EQ(entry->content.size(), entry->whole ? entry->entry.size : 0);
      }
    }
  }
}

TEST_F(CopyRecords, WhatNoBatchHoldsIsKnownBefore) {
  Entry entry = SomeFile("f", 0);
  EXPECT_TRUE(BatchWriter::CanHold(entry));
  entry.xattrs.assign(kMaxXattrs, {"user.x", "y"});
  EXPECT_TRUE(BatchWriter::CanHold(entry) && writer_.Add(entry, 0, 0));
  entry.xattrs.push_back({"user.x", "y"});
  EXPECT_FALSE(BatchWriter::CanHold(entry) || writer_.Add(entry, 1, 0));
  entry.xattrs = {{"user.x", std::string(kMaxXattrValueBytes + 1, 'v')}};
  EXPECT_FALSE(BatchWriter::CanHold(entry));
  entry.xattrs.clear();
  entry.path.assign(kMaxPathBytes, 'p');
  EXPECT_TRUE(BatchWriter::CanHold(entry));
  entry.path += 'p';
  EXPECT_FALSE(BatchWriter::CanHold(entry));
}

// --- the order ---

EntryRecord OpenFile(std::uint64_t number) {
  return {
      .entry = SomeFile("f", 0), .number = number, .whole = false, .no_data = false, .content = {}};
}

EntryRecord Entered(const std::string& path) {
  return {.entry = Directory(path), .number = 0, .whole = false, .no_data = false, .content = {}};
}

TEST(CopyRecordRules, ACopyAsItShouldBe) {
  RecordRules rules(2);
  const Bytes bytes(10);
  EXPECT_TRUE(rules.Check(Entered("d")).ok());
  EXPECT_TRUE(rules.Check(OpenFile(1)).ok());
  EXPECT_TRUE(rules.Check(PieceRecord{1, 10, bytes}).ok());
  EXPECT_TRUE(rules.Check(PieceRecord{1, 0, bytes}).ok());
  EXPECT_TRUE(rules.Check(FileEndRecord{1, 30, 20, false}).ok());
  EXPECT_FALSE(rules.CheckEnd(2).ok()) << "the directory is open";
  EXPECT_TRUE(rules.Check(LeaveRecord{Directory("d")}).ok());
  EXPECT_TRUE(rules.CheckEnd(2).ok());
  EXPECT_FALSE(rules.CheckEnd(3).ok());
}

TEST(CopyRecordRules, WhatNoCorrectSenderDoes) {
  const Bytes bytes(10);
  EXPECT_FALSE(RecordRules(2).Check(OpenFile(~0ULL)).ok()) << "no number behind it";
  EXPECT_FALSE(RecordRules(1).Check(OpenFile(0)).ok()) << "no such source";
  EXPECT_FALSE(RecordRules(2).Check(LeaveRecord{Directory("d")}).ok()) << "never entered";
  EXPECT_FALSE(RecordRules(2).Check(PieceRecord{0, 0, bytes}).ok()) << "of no file";
  EXPECT_FALSE(RecordRules(2).Check(FileEndRecord{}).ok());
  RecordRules rules(2);
  ASSERT_TRUE(rules.Check(OpenFile(0)).ok());
  EXPECT_FALSE(rules.Check(OpenFile(0)).ok()) << "twice";
  EXPECT_FALSE(rules.CheckEnd(1).ok()) << "a file is open";
  ASSERT_TRUE(rules.Check(PieceRecord{0, 0, bytes}).ok());
  EXPECT_FALSE(rules.Check(FileEndRecord{0, 30, 11, false}).ok()) << "a piece is missing";
  EXPECT_FALSE(rules.Check(FileEndRecord{0, 9, 10, false}).ok()) << "more than the file";
  EXPECT_TRUE(rules.Check(FileEndRecord{0, 0, 0, true}).ok()) << "given up";
  EXPECT_FALSE(rules.Check(PieceRecord{0, 0, bytes}).ok()) << "after its end";
}

TEST(CopyRecordRules, OpenFilesAreBounded) {
  RecordRules rules(2);
  for (std::uint64_t i = 0; i < kMaxOpenFiles; ++i) ASSERT_TRUE(rules.Check(OpenFile(i)).ok());
  EXPECT_FALSE(rules.Check(OpenFile(kMaxOpenFiles)).ok());
}

}  // namespace
}  // namespace rdfs::copy
