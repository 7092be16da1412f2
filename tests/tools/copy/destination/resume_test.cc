// What an interrupted copy leaves, and what of it the next one believes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <random>

#include "tests/tools/copy/as_ordinary.h"
#include "tests/tools/copy/temp_tree.h"
#include "tools/copy/destination/destination.h"
#include "tools/copy/destination/journal.h"
#include "tools/copy/file/metadata.h"

namespace rdfs::copy {
namespace {

using Ranges = std::vector<Range>;

TEST(NextMissing, IsWhatLiesBetween) {
  const Ranges kept = {{10, 5}, {15, 5}, {30, 10}};
  EXPECT_EQ(NextMissing(kept, 0, 100), (Range{0, 10}));
  EXPECT_EQ(NextMissing(kept, 0, 5), (Range{0, 5}));
  EXPECT_EQ(NextMissing(kept, 10, 100), (Range{20, 10}));
  EXPECT_EQ(NextMissing(kept, 12, 25), (Range{20, 5}));
  EXPECT_EQ(NextMissing(kept, 12, 20), (Range{20, 0}));
  EXPECT_EQ(NextMissing(kept, 35, 100), (Range{40, 60}));
  EXPECT_EQ(NextMissing(kept, 30, 40), (Range{40, 0}));
  EXPECT_EQ(NextMissing({}, 3, 7), (Range{3, 4}));
  EXPECT_EQ(NextMissing({}, 7, 7), (Range{7, 0}));
}

TEST(PartialName, HasAFixedLengthAndIsFoundAgain) {
  const std::string longest(255, 'n');
  EXPECT_EQ(PartialName("a").size(), PartialName(longest).size());
  EXPECT_EQ(PartialName(longest), PartialName(longest));
  EXPECT_NE(PartialName("a"), PartialName("b"));
  EXPECT_NE(PartialName("a"), JournalName("a"));
  EXPECT_TRUE(IsPartialName(PartialName("a")) && IsPartialName(JournalName("a")));
  EXPECT_FALSE(IsPartialName(".rdcp-0123456789abcdef"));
}

constexpr std::size_t kPiece = 100'000;
constexpr std::uint64_t kSize = 10 * kPiece;

class Resume : public testing::Test {
 protected:
  Resume() {
    std::mt19937_64 random(1);
    content_.resize(kSize);
    for (char& byte : content_) byte = static_cast<char>(random());
    entry_.path = "file";
    entry_.mode = 0644;
    entry_.size = kSize;
    entry_.mtime = {1'000'000'000, 7};
    entry_.ctime = {1'000'000'001, 8};
    entry_.id = {1, 2};
    Reopen();
  }
  void Reopen() {
    DestinationOptions options{.keep = {.times = true}, .resume = true};
    options.report = [](const std::string& path, const Status& why) {
      ADD_FAILURE() << path << ": " << why.message();
    };
    destination_.reset();
    auto opened = Destination::Open(tree_.path(), options);
    ASSERT_TRUE(opened.ok() && (*opened)->AddTarget(0, "").ok());
    destination_ = *std::move(opened);
  }
  [[nodiscard]] ByteSpan Piece(std::size_t i) const {
    return AsBytes(std::string_view(content_).substr(i * kPiece, kPiece));
  }
  // Writes these pieces, and is interrupted.
  void Interrupt(const std::vector<std::size_t>& pieces) {
    auto file = destination_->Begin(entry_);
    ASSERT_TRUE(file.ok());
    for (const std::size_t i : pieces) ASSERT_TRUE((*file)->Write(i * kPiece, Piece(i)).ok());
    file->reset();
    Reopen();
  }
  Ranges Kept() {
    auto file = destination_->GoOn(entry_, stop_);
    EXPECT_TRUE(file.ok());
    return file.ok() && *file != nullptr ? (*file)->kept() : Ranges();
  }
  void Damage(const std::string& name, off_t offset) {
    const Fd fd(open((tree_ / name).c_str(), O_RDWR));
    char byte = 0;
    ASSERT_EQ(pread(fd.get(), &byte, 1, offset), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(pwrite(fd.get(), &byte, 1, offset), 1);
  }
  // All that is not kept, and nothing else is left.
  void Complete(mode_t mode = 0644) {
    auto file = destination_->GoOn(entry_, stop_);
    ASSERT_TRUE(file.ok());
    if (*file == nullptr) file = destination_->Begin(entry_);
    ASSERT_TRUE(file.ok());
    const Ranges kept = (*file)->kept();
    for (Range next = NextMissing(kept, 0, kSize); next.length > 0;
         next = NextMissing(kept, next.offset + next.length, kSize)) {
      const auto bytes = std::string_view(content_).substr(next.offset, next.length);
      ASSERT_TRUE((*file)->Write(next.offset, AsBytes(bytes)).ok());
    }
    ASSERT_TRUE((*file)->Finish(entry_).ok());
    file->reset();
    EXPECT_TRUE(tree_.Read("file") == content_);
    EXPECT_EQ(tree_.Entries(), 1U);
    EXPECT_EQ(tree_.Stat("file").st_mode & 07777U, mode);
  }

  const std::string partial_ = PartialName("file"), journal_ = JournalName("file");
  std::string content_;
  Entry entry_;
  TempTree tree_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<Destination> destination_;
};

TEST_F(Resume, WhatWasWrittenIsKept) {
  Interrupt({0, 1, 5});
  EXPECT_FALSE(tree_.Has("file"));
  EXPECT_EQ(Kept(), (Ranges{{0, 2 * kPiece}, {5 * kPiece, kPiece}}));
  // And stays so until somebody finishes it.
  EXPECT_EQ(Kept(), (Ranges{{0, 2 * kPiece}, {5 * kPiece, kPiece}}));
  Complete();
}

TEST_F(Resume, AnInterruptedRestAddsToIt) {
  Interrupt({0});
  auto file = destination_->GoOn(entry_, stop_);
  ASSERT_TRUE(file.ok() && *file != nullptr);
  ASSERT_TRUE((*file)->Write(kPiece, Piece(1)).ok());
  file->reset();
  EXPECT_EQ(Kept(), (Ranges{{0, 2 * kPiece}}));
  Complete();
}

TEST_F(Resume, AReadOnlyFileIsGoneOnWith) {
  GiveAway(tree_);
  const AsOrdinary user;
  entry_.mode = 0444;
  Reopen();
  Interrupt({0, 1});
  EXPECT_EQ(Kept(), (Ranges{{0, 2 * kPiece}}));
  Complete(0444);
}

// What would have replaced a file that is not there any more has a new file's mode.
TEST_F(Resume, TheFileThatItWasToReplaceIsGone) {
  tree_.Write("file", "old");
  Interrupt({0, 1});
  ASSERT_EQ(unlink((tree_ / "file").c_str()), 0);
  EXPECT_EQ(Kept(), (Ranges{{0, 2 * kPiece}}));
  Complete();
}

TEST_F(Resume, NothingWrittenLeavesNothing) {
  Interrupt({});
  EXPECT_EQ(tree_.Entries(), 0U);
}

TEST_F(Resume, AChangedSourceStartsOver) {
  Interrupt({0, 1, 2});
  const Entry before = entry_;
  const auto expect_anew = [&](const char* what) {
    EXPECT_EQ(Kept(), Ranges()) << what;
    entry_ = before;
  };
  entry_.size += 1;
  expect_anew("size");
  entry_.mtime.tv_nsec += 1;
  expect_anew("mtime");
  entry_.ctime.tv_nsec += 1;
  expect_anew("ctime");
  entry_.id.inode += 1;
  expect_anew("inode");
  EXPECT_EQ(Kept(), (Ranges{{0, 3 * kPiece}}));
  entry_.ctime.tv_sec += 1;
  Complete();
}

TEST_F(Resume, DamageIsFoundAndCopiedAgain) {
  Interrupt({0, 1, 2});
  Damage(partial_, kPiece + 5);
  EXPECT_EQ(Kept(), (Ranges{{0, kPiece}, {2 * kPiece, kPiece}}));
  // What is not believed is a hole, so that one of the source's is one here.
  std::string there = tree_.Read(partial_);
  EXPECT_TRUE(there.substr(kPiece, kPiece) == std::string(kPiece, '\0'));
  Complete();
}

TEST_F(Resume, ADamagedJournalIsNotBelieved) {
  Interrupt({0, 1});
  Damage(journal_, 10);  // the source's size
  EXPECT_EQ(Kept(), Ranges());
  Complete();
  Interrupt({0, 1});
  Damage(journal_, 64 + 3);  // the first stretch's offset
  EXPECT_EQ(Kept(), (Ranges{{kPiece, kPiece}}));
  // Torn by a crash.
  ASSERT_EQ(truncate((tree_ / journal_).c_str(), 64 + 32 + 7), 0);
  EXPECT_EQ(Kept(), Ranges());
}

TEST_F(Resume, AShorterFileIsNotBelieved) {
  Interrupt({0, 1});
  ASSERT_EQ(truncate((tree_ / partial_).c_str(), 150'000), 0);
  EXPECT_EQ(Kept(), (Ranges{{0, kPiece}}));
  ASSERT_EQ(unlink((tree_ / partial_).c_str()), 0);
  EXPECT_EQ(Kept(), Ranges());
  Complete();
}

TEST_F(Resume, LinksAndOtherFilesInItsPlaceAreNotTouched) {
  Interrupt({0});
  tree_.Write("precious", std::string(kSize, 'p'));
  ASSERT_EQ(unlink((tree_ / partial_).c_str()), 0);
  ASSERT_EQ(symlink("precious", (tree_ / partial_).c_str()), 0);
  EXPECT_EQ(Kept(), Ranges());
  ASSERT_EQ(unlink((tree_ / partial_).c_str()), 0);
  ASSERT_EQ(link((tree_ / "precious").c_str(), (tree_ / partial_).c_str()), 0);
  EXPECT_EQ(Kept(), Ranges());
  ASSERT_EQ(unlink((tree_ / journal_).c_str()), 0);
  ASSERT_EQ(symlink("precious", (tree_ / journal_).c_str()), 0);
  auto file = destination_->Begin(entry_);  // under a name of its own
  ASSERT_TRUE(file.ok() && (*file)->Write(0, Piece(0)).ok());
  file->reset();
  EXPECT_TRUE(tree_.Read("precious") == std::string(kSize, 'p'));
}

TEST_F(Resume, AJournalTellsTheNumbersOfNamesTheLatestFirst) {
  const SourceMark mark = SourceMark::Of(entry_);
  const FilePtr folder = Here()->Open(tree_.path(), O_RDONLY | O_DIRECTORY);
  const auto open = [&] { return Journal::Open(*folder, journal_, true); };
  {
    const auto journal = open();
    ASSERT_TRUE(journal != nullptr && journal->Start(mark).ok());
    EXPECT_TRUE(journal->Numbers().empty());
    ASSERT_TRUE(journal->AddNumber(7).ok());
    journal->Add(0, Piece(0));
    journal->Flush();
  }
  // Torn, by who was killed: what comes next is behind what is whole.
  ASSERT_EQ(truncate((tree_ / journal_).c_str(), 64 + 2 * 32 + 5), 0);
  ASSERT_TRUE(open()->AddNumber(9).ok());
  EXPECT_EQ(open()->Numbers(), (std::vector<std::uint64_t>{9, 7}));
  Damage(journal_, 64 + 20);
  EXPECT_EQ(open()->Numbers(), std::vector<std::uint64_t>{9});
  tree_.Write(partial_, content_.substr(0, kPiece));
  EXPECT_EQ(*open()->Trusted(mark, *folder->Open(partial_, O_RDONLY), stop_),
            (Ranges{{0, kPiece}}));
  EXPECT_EQ(PartialName(0x123456789abcdefU), ".rdcp-part-0123456789abcdef");
}

TEST_F(Resume, AJournalThatCannotBeUsedIsNotLeftBehind) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes files that are somebody else's";
  ASSERT_EQ(chmod(tree_.path().c_str(), 0777), 0);
  const FilePtr folder = Here()->Open(tree_.path(), O_RDONLY | O_DIRECTORY);
  ASSERT_NE(folder, nullptr);
  setfsuid(kOrdinary);  // as a file system does that gives all files to one user
  EXPECT_EQ(Journal::Open(*folder, journal_, true), nullptr);
  EXPECT_FALSE(tree_.Has(journal_));
  // What was there before is somebody's.
  tree_.Write(journal_, "");
  EXPECT_EQ(Journal::Open(*folder, journal_, true), nullptr);
  EXPECT_TRUE(tree_.Has(journal_));
  setfsuid(0);
}

TEST_F(Resume, TwoNeverWriteOne) {
  auto one = destination_->Begin(entry_);
  auto other = destination_->Begin(entry_);
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_TRUE((*one)->Write(0, Piece(0)).ok());
  EXPECT_EQ(Kept(), Ranges());
  other->reset();
  one->reset();
  EXPECT_EQ(Kept(), (Ranges{{0, kPiece}}));
}

TEST_F(Resume, WhatWasFoundWrongIsNotKept) {
  auto file = destination_->Begin(entry_);
  ASSERT_TRUE(file.ok() && (*file)->Write(0, Piece(0)).ok());
  (*file)->Distrust();
  file->reset();
  EXPECT_EQ(tree_.Entries(), 0U);
}

TEST_F(Resume, WhatAnInterruptedCopyHasLeftInTheSourceTakesNobodysPlace) {
  auto file = destination_->Begin(entry_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(0, AsBytes(content_)).ok());
  for (const std::string& name : {partial_, journal_, "folder/" + partial_}) {
    Entry left = entry_;
    left.path = name;
    left.id = {1, 3};
    EXPECT_FALSE(destination_->Begin(left).ok()) << name;
    left.kind = Kind::kSymlink;
    left.target = "x";
    EXPECT_FALSE(destination_->Make(left).ok()) << name;
    left.kind = Kind::kDirectory;
    EXPECT_FALSE(destination_->Enter(left).ok()) << name;
    EXPECT_FALSE(destination_->Peek(left).ok()) << name;
  }
  ASSERT_TRUE((*file)->Finish(entry_).ok());
  file->reset();
  EXPECT_TRUE(tree_.Read("file") == content_);
  EXPECT_EQ(tree_.Entries(), 1U);
}

TEST_F(Resume, WhatIsRenamedOntoAnUnfinishedFileDoesNotGetItsName) {
  auto file = destination_->Begin(entry_);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(0, AsBytes(content_)).ok());
  tree_.Write("other", "evil");
  std::filesystem::rename(tree_ / "other", tree_ / partial_);
  EXPECT_EQ((*file)->Finish(entry_).errno_value(), EEXIST);
  file->reset();
  EXPECT_FALSE(tree_.Has("file"));
}

TEST_F(Resume, StoppedWhileItReadsItStaysAsItIs) {
  Interrupt({0, 1});
  stop_ = true;
  EXPECT_EQ(destination_->GoOn(entry_, stop_).status().errno_value(), EINTR);
  stop_ = false;
  EXPECT_EQ(Kept(), (Ranges{{0, 2 * kPiece}}));
}

TEST_F(Resume, DeleteLeavesWhatSomebodyMayGoOnWith) {
  Interrupt({0});
  tree_.Write("extra", "x");
  Entry root;
  root.kind = Kind::kDirectory;
  ASSERT_TRUE(destination_->Enter(root).ok());
  ASSERT_TRUE(
      destination_
          ->Prune(
              root, {}, [](const std::string&, bool) { return false; }, [](const std::string&) {})
          .ok());
  EXPECT_FALSE(tree_.Has("extra"));
  EXPECT_EQ(Kept(), (Ranges{{0, kPiece}}));
}

}  // namespace
}  // namespace rdfs::copy
