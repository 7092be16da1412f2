// Listing directories: completeness, cookies, attributes, change while listing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

struct Listed {
  std::string name;
  std::uint64_t cookie = 0;
  std::uint64_t ino = 0;
  bool attributes = false;
  fs::Entry entry;
};

class DirTest : public testing::Test {
 protected:
  std::uint64_t OpenDir(const fs::Handle& handle) {
    const Answer answer =
        server.Ask(Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Add(handle));
    EXPECT_TRUE(answer.ok());
    return server.OpenNumber(answer);
  }
  std::vector<Listed> ReadSome(std::uint64_t open, std::uint64_t cookie, std::uint32_t bytes,
                               bool plus) {
    fs::ReadDirRequest request{};
    request.open = open;
    request.cookie = cookie;
    request.max_bytes = bytes;
    request.flags = plus ? fs::kReadDirPlus : 0;
    const Answer answer = server.Ask(Opcode::kReadDir, Body().Add(request));
    EXPECT_TRUE(answer.ok());
    EXPECT_LE(answer.body.size(), bytes);
    return Parse(ByteReader(answer.body), plus);
  }
  static std::vector<Listed> Parse(ByteReader reader, bool plus) {
    std::vector<Listed> out;
    while (reader.remaining() > 0 && reader.ok()) {
      const auto wire = reader.Read<fs::DirEntryWire>();
      Listed listed;
      listed.cookie = wire.cookie;
      listed.ino = wire.ino;
      listed.name = std::string(AsText(reader.ReadSized16(255)));
      if (plus && reader.Read<Le16>() == 1) {
        listed.attributes = true;
        listed.entry = fs::ReadEntry(reader);
      }
      out.push_back(listed);
    }
    EXPECT_TRUE(reader.ok());
    return out;
  }
  // As if getdents64(2) had told these, each with its number from 101 on as its cookie, behind the
  // cookie 100.
  void Pretend(std::uint64_t open, const std::vector<std::string>& names) {
    DirectoryCursor& cursor = *server.session()->FindOpen(open)->directory;
    cursor.buffer.clear();
    std::int64_t offset = 100;
    for (const std::string& name : names) {
      constexpr std::size_t kNameOffset = 19;
      const std::size_t at = cursor.buffer.size();
      const std::size_t bytes = (kNameOffset + name.size() + 1 + 7) / 8 * 8;
      const std::uint64_t ino = 1000;
      const auto record_bytes = static_cast<std::uint16_t>(bytes);
      cursor.buffer.resize(at + bytes);
      ++offset;
      std::memcpy(&cursor.buffer[at], &ino, sizeof(ino));
      std::memcpy(&cursor.buffer[at + 8], &offset, sizeof(offset));
      std::memcpy(&cursor.buffer[at + 16], &record_bytes, sizeof(record_bytes));
      std::memcpy(&cursor.buffer[at + kNameOffset], name.data(), name.size());
    }
    cursor.next = 0;
    cursor.end = cursor.buffer.size();
    cursor.cookie = 100;
    cursor.positioned = true;
  }
  std::vector<Listed> ReadAll(std::uint64_t open, std::uint32_t bytes, bool plus) {
    std::vector<Listed> all;
    std::uint64_t cookie = 0;
    for (auto some = ReadSome(open, 0, bytes, plus); !some.empty();
         some = ReadSome(open, cookie, bytes, plus)) {
      cookie = some.back().cookie;
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  Harness server;
};

TEST_F(DirTest, TellsTheEndWithTheLastEntriesWhereAskedTo) {
  for (int i = 0; i < 40; ++i) std::ofstream(server / ("entry-" + std::to_string(i)));
  const std::uint64_t open = OpenDir(server.root());
  const std::size_t entries = ReadAll(open, 4096, false).size();
  fs::ReadDirRequest request{};
  request.open = open;
  request.flags = fs::kReadDirTellEnd;
  for (const std::uint32_t bytes : {300U, 64U * 1024}) {
    request.max_bytes = bytes;
    request.cookie = 0;
    std::size_t seen = 0;
    bool ended = false;
    while (!ended) {
      const Answer answer = server.Ask(Opcode::kReadDir, Body().Add(request));
      ASSERT_TRUE(answer.ok());
      ASSERT_LE(answer.body.size(), bytes);
      ByteReader reader(answer.body);
      ended = reader.remaining() == 0;  // there was no room to tell it
      while (reader.remaining() > 0) {
        const auto wire = reader.Read<fs::DirEntryWire>();
        ended = wire.type == fs::kDirectoryEnd;
        if (ended) break;
        (void)reader.ReadSized16(255);
        ASSERT_TRUE(reader.ok());
        request.cookie = wire.cookie;
        ++seen;
      }
      EXPECT_EQ(reader.remaining(), 0U);
    }
    EXPECT_EQ(seen, entries);
  }
}

TEST_F(DirTest, TheFirstPageComesWithTheOpenWhereAskedFor) {
  for (int i = 0; i < 100; ++i) std::ofstream(server / ("entry-" + std::to_string(i)));
  for (const bool plus : {false, true}) {
    for (const std::uint32_t bytes : {600U, 4096U, 65535U}) {
      const fs::OpenDirRequest page{.max_bytes = bytes, .flags = plus ? fs::kReadDirPlus : 0};
      const Answer answer = server.Ask(Opcode::kOpenDir, Body().Add(page).Add(server.root()));
      ASSERT_TRUE(answer.ok());
      ByteReader reader(answer.body);
      const std::uint64_t open = reader.Read<fs::OpenReply>().open;
      ASSERT_LE(reader.remaining(), bytes);
      std::vector<Listed> all = Parse(reader, plus);
      ASSERT_FALSE(all.empty());
      // What follows is had as ever.
      while (true) {
        const auto some = ReadSome(open, all.back().cookie, 4096, plus);
        if (some.empty()) break;
        all.insert(all.end(), some.begin(), some.end());
      }
      std::set<std::string> names;
      for (const Listed& entry : all) names.insert(entry.name);
      EXPECT_EQ(names.size(), 102U);
      EXPECT_EQ(all.size(), 102U);
    }
  }
}

TEST_F(DirTest, WhatIsAskedAgainIsTheDirectoryThatIsOpenAlready) {
  for (int i = 0; i < 100; ++i) std::ofstream(server / ("entry-" + std::to_string(i)));
  const fs::OpenDirRequest page{.max_bytes = 600, .flags = 0};
  const Body body = Body().Add(page).Add(server.root());
  const auto ask = [&](std::uint64_t sequence, std::uint16_t flags) {
    const auto message = Harness::Message(Opcode::kOpenDir, body.bytes(), sequence,
                                          server.lane->session()->id(), server.caller, flags);
    EXPECT_TRUE(server.Deliver(server.lane, message));
    return server.TakeAnswer(server.lane);
  };
  const std::uint64_t sequence = server.NextSequence();
  const Answer lost = ask(sequence, 0);
  const std::uint64_t open = server.OpenNumber(lost);
  ReadSome(open, 0, 4096, false);
  const Answer again = ask(sequence, fs::kRequestSentBefore);
  EXPECT_EQ(server.OpenNumber(again), open);
  EXPECT_EQ(again.body.size(), lost.body.size());  // from the start
  EXPECT_EQ(server.lane->session()->open_files(), 1U);
  // One that had not arrived before.
  const std::uint64_t other = server.OpenNumber(ask(server.NextSequence(), fs::kRequestSentBefore));
  EXPECT_NE(other, open);
  EXPECT_EQ(ReadAll(other, 4096, false).size(), 102U);
  EXPECT_EQ(server.lane->session()->open_files(), 2U);
}

TEST_F(DirTest, AFirstPageThatHoldsNothingLeavesTheDirectoryOpen) {
  std::ofstream(server / "file");
  const fs::OpenDirRequest page{.max_bytes = 8, .flags = 0};
  const Answer answer = server.Ask(Opcode::kOpenDir, Body().Add(page).Add(server.root()));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer.body.size(), sizeof(fs::OpenReply));
  EXPECT_EQ(ReadAll(server.OpenNumber(answer), 4096, true).size(), 3U);
}

TEST_F(DirTest, AFirstPageThatIsTooLargeOrUnknownIsMalformed) {
  for (const auto& page : {fs::OpenDirRequest{.max_bytes = fs::kMaxReaddirBytes + 1, .flags = 0},
                           fs::OpenDirRequest{.max_bytes = 4096, .flags = 4}}) {
    Harness other;
    const Body body = Body().Add(page).Add(other.root());
    EXPECT_FALSE(other.Deliver(other.lane, Harness::Message(Opcode::kOpenDir, body.bytes(), 1)));
  }
}

TEST_F(DirTest, ListsEverythingOnceInEveryPortionSize) {
  std::set<std::string> expected = {".", ".."};
  for (std::size_t i = 0; i < 500; ++i) {
    const std::string name = "entry-" + std::to_string(i) + std::string(i % 200, 'x');
    std::ofstream(server / name);
    expected.insert(name);
  }
  const std::uint64_t open = OpenDir(server.root());
  for (const bool plus : {false, true}) {
    for (const std::uint32_t bytes : {600U, 4096U, 65536U}) {
      std::set<std::string> seen;
      for (const Listed& entry : ReadAll(open, bytes, plus)) {
        EXPECT_TRUE(seen.insert(entry.name).second) << entry.name << " twice";
        const bool dots = entry.name == "." || entry.name == "..";
        EXPECT_EQ(entry.attributes, plus && !dots);
        if (entry.attributes) {
          EXPECT_EQ(entry.entry.attr.ino, entry.ino);
        }
      }
      EXPECT_EQ(seen, expected) << bytes;
    }
  }
}

TEST_F(DirTest, CookiesStayGoodWhileEntriesComeAndGo) {
  for (int i = 0; i < 300; ++i) std::ofstream(server / ("f" + std::to_string(i)));
  const std::uint64_t open = OpenDir(server.root());
  const auto first = ReadSome(open, 0, 4096, false);
  ASSERT_GT(first.size(), 10U);
  std::set<std::string> seen;
  for (const Listed& entry : first) seen.insert(entry.name);
  // What has been listed goes, and a later listing from there on misses nothing that stayed.
  for (const Listed& entry : first) ::unlink((server / entry.name).c_str());
  for (int i = 0; i < 100; ++i) std::ofstream(server / ("late" + std::to_string(i)));
  std::uint64_t cookie = first.back().cookie;
  for (auto some = ReadSome(open, cookie, 1000, false); !some.empty();
       some = ReadSome(open, cookie, 1000, false)) {
    for (const Listed& entry : some) {
      EXPECT_TRUE(seen.insert(entry.name).second) << entry.name << " twice";
    }
    cookie = some.back().cookie;
  }
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(seen.contains("f" + std::to_string(i))) << i;
}

TEST_F(DirTest, SeeksBackToAnyCookie) {
  for (int i = 0; i < 50; ++i) std::ofstream(server / ("f" + std::to_string(i)));
  const std::uint64_t open = OpenDir(server.root());
  const auto all = ReadAll(open, 65536, false);
  for (std::size_t i = 0; i + 1 < all.size(); i += 7) {
    const auto rest = ReadSome(open, all[i].cookie, 65536, false);
    ASSERT_EQ(rest.size(), all.size() - i - 1);
    EXPECT_EQ(rest.front().name, all[i + 1].name);
  }
}

TEST_F(DirTest, AFileMadeSinceTheOpenIsSeenFromTheStart) {
  const std::uint64_t open = OpenDir(server.root());
  EXPECT_EQ(ReadAll(open, 4096, false).size(), 2U);
  std::ofstream(server / "new");
  EXPECT_EQ(ReadAll(open, 4096, false).size(), 3U);
}

TEST_F(DirTest, NamesThatAreNotUtf8) {
  const std::string name = "\xff\xfe\x80 \n";
  std::ofstream(server / name);
  const std::uint64_t open = OpenDir(server.root());
  bool found = false;
  for (const Listed& entry : ReadAll(open, 4096, true)) found |= entry.name == name;
  EXPECT_TRUE(found);
  EXPECT_TRUE(server.Lookup(server.root(), name).ok());
}

TEST_F(DirTest, NamesThatAreTooLongForTheWireAreLeftOut) {
  const std::string longest(255, 'l'), too_long(256, 't'), far_too_long(1023, 'f');
  for (const bool plus : {false, true}) {
    const std::uint64_t open = OpenDir(server.root());
    Pretend(open, {"first", too_long, longest, far_too_long});
    const std::vector<Listed> some = ReadSome(open, 100, 4096, plus);
    ASSERT_EQ(some.size(), 2U);
    EXPECT_EQ(some[0].name, "first");
    EXPECT_EQ(some[0].cookie, 101U);
    EXPECT_EQ(some[1].name, longest);
    EXPECT_EQ(some[1].cookie, 103U);
    // Nothing but such names: what follows is asked for, and an empty page says that nothing does.
    Pretend(open, {far_too_long, too_long});
    std::set<std::string> names;
    for (const Listed& listed : ReadSome(open, 100, 4096, plus)) names.insert(listed.name);
    EXPECT_EQ(names, (std::set<std::string>{".", ".."}));
    Pretend(open, {too_long});
    EXPECT_TRUE(ReadSome(open, 100, 4096, plus).empty());
  }
}

TEST_F(DirTest, Refusals) {
  std::ofstream(server / "file");
  EXPECT_EQ(server.Ask(Opcode::kOpenDir, Body().Add(fs::OpenDirRequest{}).Add(server.Walk("file")))
                .errno_value(),
            ENOTDIR);
  const std::uint64_t open = OpenDir(server.root());
  fs::ReadDirRequest tiny{};
  tiny.open = open;
  tiny.max_bytes = 10;
  EXPECT_EQ(server.Ask(Opcode::kReadDir, Body().Add(tiny)).errno_value(), EINVAL);
  fs::FsyncRequest sync{};
  sync.open = open;
  EXPECT_TRUE(server.Ask(Opcode::kFsyncDir, Body().Add(sync)).ok());
  fs::ReleaseRequest release{};
  release.open = open;
  EXPECT_TRUE(server.Ask(Opcode::kReleaseDir, Body().Add(release)).ok());
  EXPECT_EQ(server.Ask(Opcode::kReleaseDir, Body().Add(release)).errno_value(), EBADF);
}

TEST_F(DirTest, AHundredThousandEntries) {
  constexpr int kEntries = 100'000;
  const Fd dir(::open(server.dir().c_str(), O_RDONLY | O_DIRECTORY));
  for (int i = 0; i < kEntries; ++i) {
    const Fd file(::openat(dir.get(), std::to_string(i).c_str(), O_CREAT | O_WRONLY, 0644));
    ASSERT_TRUE(file.valid());
  }
  const std::uint64_t open = OpenDir(server.root());
  EXPECT_EQ(ReadAll(open, 65536, false).size(), kEntries + 2U);
  EXPECT_EQ(ReadAll(open, 65536, true).size(), kEntries + 2U);
  EXPECT_LE(server.table().descriptors(), 1025U);
}

}  // namespace
}  // namespace rdfs::server
