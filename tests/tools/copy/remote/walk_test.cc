// What the sender hands out of a tree that changes meanwhile.
#include "tools/copy/remote/walk.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/tools/pipe/temp_dir.h"

namespace rdfs::copy {
namespace {

constexpr std::uint32_t kSlot = 64 << 10;

class WalkTest : public testing::Test {
 protected:
  // Sends "file", which becomes `left` bytes long when its entry is out. Its end.
  FileEndRecord Send(off_t left) {
    WalkOptions options;
    options.paths = {dir_ / "file"};
    options.slot_bytes = kSlot;
    Walk walk(std::move(options),
              [this](const Notice& notice) { told_.push_back(notice.sentence); });
    while (auto task = walk.Next()) {
      for (const WalkItem& item : task->items) {
        if (item.what == WalkItem::What::kFileEnd) return item.end;
        EXPECT_EQ(truncate((dir_ / "file").c_str(), left), 0);
      }
      for (const WalkPiece& piece : task->pieces) walk.PieceRead(piece, {});
    }
    ADD_FAILURE() << "it has no end";
    return {};
  }

  pipe::TempDir dir_;
  std::vector<std::string> told_;
};

TEST_F(WalkTest, AFileThatBecomesShorterIsGivenUp) {
  dir_.Write("file", std::string(1 << 20, 'x'));
  EXPECT_TRUE(Send(0).given_up);
  EXPECT_EQ(told_, std::vector<std::string>{"it became shorter while it was copied"});
}

// The data are there, and behind them there is only a hole: which was cut off.
TEST_F(WalkTest, OneOfWhichAHoleWasCutOffIsGivenUp) {
  dir_.Write("file", std::string(100'000, 'x'));
  ASSERT_EQ(truncate((dir_ / "file").c_str(), 4 << 20), 0);
  EXPECT_TRUE(Send(2 << 20).given_up);
}

TEST_F(WalkTest, AHoleAtTheEndIsNone) {
  dir_.Write("file", std::string(100'000, 'x'));
  ASSERT_EQ(truncate((dir_ / "file").c_str(), 4 << 20), 0);
  const FileEndRecord end = Send(4 << 20);
  EXPECT_FALSE(end.given_up);
  EXPECT_EQ(end.size, 4U << 20U);
  EXPECT_TRUE(told_.empty());
}

// One that was renamed over it is sent as it is, or not at all.
TEST_F(WalkTest, AFileThatIsReplacedIsNoPartOfAnother) {
  for (const std::size_t size : {std::size_t{100}, std::size_t{1} << 20}) {
    const std::vector<std::string> names{"same", "larger"};
    WalkOptions options;
    options.slot_bytes = kSlot;
    options.offers = true;
    options.keep = Keep::All();
    for (const std::string& name : names) {
      dir_.Write(name, std::string(size, 'o'));
      options.paths.push_back(dir_ / name);
    }
    Walk walk(std::move(options),
              [this](const Notice& notice) { told_.push_back(notice.sentence); });
    auto task = walk.Next();
    ASSERT_TRUE(task && task->items.size() == 2);
    for (const std::string& name : names) {
      dir_.Write("new", std::string(name == "same" ? size : size + 1, 'n'));
      ASSERT_EQ(chmod((dir_ / "new").c_str(), 0600), 0);
      ASSERT_EQ(rename((dir_ / "new").c_str(), (dir_ / name).c_str()), 0);
    }
    ASSERT_TRUE(walk.Answered({2, {0, 1}}).ok());
    std::set<std::string> opened;
    while ((task = walk.Next())) {
      for (WalkItem& item : task->items) {
        if (item.what == WalkItem::What::kFileEnd) continue;
        if (item.what == WalkItem::What::kWhole) {
          const auto file = walk.Open(item.scanned);
          if (!file.ok()) {
            walk.TellOf(item.scanned.entry, file.status());
            continue;
          }
        }
        opened.insert(names[item.scanned.entry.source]);
        EXPECT_EQ(item.scanned.entry.mode, 0600U);
        EXPECT_EQ(item.scanned.entry.size, size);
      }
      for (const WalkPiece& piece : task->pieces) walk.PieceRead(piece, {});
    }
    EXPECT_EQ(opened, std::set<std::string>{"same"});
  }
  const std::string sentence = "it was replaced while it was copied";
  EXPECT_EQ(told_, (std::vector<std::string>{sentence, sentence}));
}

// With --resume, too, one that just fills a slot is handed out whole.
TEST_F(WalkTest, WhatJustFitsASlotIsHandedOut) {
  Entry entry;
  entry.path = "file";
  const std::size_t most = kSlot - BatchWriter::SizeOf(entry);
  std::filesystem::create_directory(dir_ / "source");
  dir_.Write("source/file", std::string(most, 'x'));
  dir_.Write("source/next", "next");
  WalkOptions options;
  options.paths = {dir_ / "source"};
  options.slot_bytes = kSlot;
  options.scan.recurse = true;
  options.offers = true;
  options.resume = true;
  Walk walk(std::move(options), [](const Notice& notice) { ADD_FAILURE() << notice.sentence; });
  std::vector<std::uint64_t> wholes;
  while (const auto task = walk.Next()) {
    for (const WalkItem& item : task->items) {
      if (item.what == WalkItem::What::kWhole) wholes.push_back(item.scanned.entry.size);
      if (item.what != WalkItem::What::kOffer) continue;
      ASSERT_TRUE(walk.Answered({item.number + 1, {item.number}}).ok());
    }
  }
  std::ranges::sort(wholes);
  EXPECT_EQ(wholes, (std::vector<std::uint64_t>{4, most}));
}

// Who may open few files goes on with fewer directories at a time.
TEST_F(WalkTest, FewDirectoriesAreHeldOpen) {
  constexpr std::size_t kFolders = 40;
  constexpr std::size_t kMost = 8;
  std::filesystem::create_directory(dir_ / "source");
  for (std::size_t i = 0; i < kFolders; ++i) {
    const std::string name = "source/" + std::to_string(i);
    std::filesystem::create_directory(dir_ / name);
    dir_.Write(name + "/file", "content");
  }
  for (const bool offers : {false, true}) {
    WalkOptions options;
    options.paths = {dir_ / "source"};
    options.slot_bytes = kSlot;
    options.scan.recurse = true;
    options.offers = offers;
    options.folders = kMost;
    Walk walk(std::move(options), [](const Notice& notice) { ADD_FAILURE() << notice.sentence; });
    std::set<std::string> wholes;
    while (const auto task = walk.Next()) {
      std::set<FilePtr> held;
      Want want;
      for (const WalkItem& item : task->items) {
        if (item.scanned.directory != nullptr) held.insert(item.scanned.directory);
        if (item.what == WalkItem::What::kWhole) wholes.insert(item.scanned.entry.path);
        if (item.what != WalkItem::What::kOffer) continue;
        want.numbers.push_back(item.number);
        want.up_to = item.number + 1;
      }
      EXPECT_LE(held.size(), kMost) << offers;
      ASSERT_TRUE(want.numbers.empty() || walk.Answered(want).ok());
    }
    EXPECT_EQ(wholes.size(), kFolders) << offers;
  }
}

// Sources that may bring one path: nothing of a later one before somebody says so.
TEST_F(WalkTest, InTurnASourceWaitsForTheOnesBefore) {
  for (const std::string name : {"one", "two", "three"}) dir_.Write(name, name);
  WalkOptions options;
  options.paths = {dir_ / "one", dir_ / "two", dir_ / "three"};
  options.slot_bytes = kSlot;
  options.turns = {1, 2, 3};
  Walk walk(std::move(options), [](const Notice& notice) { ADD_FAILURE() << notice.sentence; });
  for (std::uint32_t source = 0; source < 3; ++source) {
    const auto task = walk.Next();
    ASSERT_TRUE(task && task->items.size() == 1) << source;
    EXPECT_EQ(task->items[0].scanned.entry.source, source);
    EXPECT_FALSE(walk.Next().has_value());
    EXPECT_EQ(walk.waits(), source < 2);
    if (walk.waits()) walk.BeginNext();
  }
}

// What was offered is answered, and what is wanted handed out, before it is another one's turn.
TEST_F(WalkTest, InTurnAnswersBelongToTheirSource) {
  for (const std::string name : {"one", "two"}) dir_.Write(name, name);
  WalkOptions options;
  options.paths = {dir_ / "one", dir_ / "two"};
  options.slot_bytes = kSlot;
  options.offers = true;
  options.turns = {1, 2};
  Walk walk(std::move(options), [](const Notice& notice) { ADD_FAILURE() << notice.sentence; });
  std::vector<std::uint32_t> sources;
  for (bool more = true; more;) {
    while (const auto task = walk.Next()) {
      for (const WalkItem& item : task->items) {
        sources.push_back(item.scanned.entry.source);
        if (item.what != WalkItem::What::kOffer) continue;
        ASSERT_TRUE(walk.Answered({item.number + 1, {item.number}}).ok());
      }
    }
    more = walk.waits();
    if (more) walk.BeginNext();
  }
  EXPECT_EQ(sources, (std::vector<std::uint32_t>{0, 0, 1, 1}));
}

}  // namespace
}  // namespace rdfs::copy
