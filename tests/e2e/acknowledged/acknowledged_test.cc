// The checker checked, on a local directory: it finds nothing where nothing is wrong, and each
// loss, repetition and resurrection that is planted behind its back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/e2e/acknowledged/check.h"
#include "tests/e2e/acknowledged/model.h"
#include "tests/e2e/acknowledged/run.h"

namespace rdfs::acknowledged {
namespace {

namespace files = std::filesystem;

constexpr int kThreads = 3;
constexpr int kShared = 40;

class AcknowledgedTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = files::temp_directory_path() / "rdfs-acknowledged-XXXXXX";
    base_ = mkdtemp(pattern.data());
    files::create_directory(base_ / "export");
    files::create_directory(base_ / "journals");
    Prepare(root(), kThreads, kShared);
    plan_.mounts = {root(), root()};
    plan_.journal = base_ / "journals";
    plan_.shared = kShared;
  }
  void TearDown() override { files::remove_all(base_); }

  [[nodiscard]] std::string root() const { return base_ / "export"; }
  [[nodiscard]] std::vector<std::string> Found() const {
    return Check(plan_.journal, root(), kShared, plan_.unsure);
  }
  // Runs until each thread has had some calls.
  Ran RunAWhile() {
    std::atomic<bool> stop{false};
    std::thread watch([&] {
      const auto enough = [this](int thread) {
        return ReadJournal(JournalPath(plan_.journal, thread)).size() > 1500;
      };
      while (!stop && !(enough(0) && enough(1) && enough(2))) std::this_thread::yield();
      stop = true;
    });
    Ran ran = acknowledged::Run(plan_, kThreads, stop);
    stop = true;
    watch.join();
    return ran;
  }
  // A file of a thread's that is not empty, by its path.
  [[nodiscard]] files::path SomeFile() const {
    for (const auto& entry : files::recursive_directory_iterator(root())) {
      const bool own = entry.path().string().find("/thread-") != std::string::npos;
      if (own && entry.is_regular_file() && entry.file_size() > 100) return entry.path();
    }
    return {};
  }
  [[nodiscard]] std::string LogText() const {
    std::ifstream in(root() + "/" + kLogName);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  files::path base_;
  Plan plan_;
};

TEST_F(AcknowledgedTest, ALocalDirectoryIsRight) {
  const Ran ran = RunAWhile();
  EXPECT_EQ(ran.wrong, std::vector<std::string>{});
  EXPECT_EQ(ran.unsure, 0U);
  EXPECT_EQ(Found(), std::vector<std::string>{});
}

TEST_F(AcknowledgedTest, WhatIsLostOrComesBackIsFound) {
  ASSERT_EQ(RunAWhile().wrong, std::vector<std::string>{});
  const files::path file = SomeFile();
  ASSERT_FALSE(file.empty());
  const auto size = files::file_size(file);
  const auto expect_found = [this](const char* what) { EXPECT_FALSE(Found().empty()) << what; };

  std::string bytes(size, 0);
  std::ifstream(file).read(bytes.data(), static_cast<std::streamsize>(size));
  const auto put_back = [&] { std::ofstream(file) << bytes; };
  std::fstream(file, std::ios::in | std::ios::out).seekp(50).put('!');
  expect_found("a byte");
  put_back();
  files::resize_file(file, size - 1);
  expect_found("its end");
  put_back();
  files::permissions(file, files::perms::owner_exec, files::perm_options::add);
  expect_found("a mode");
  files::permissions(file, files::perms::owner_exec, files::perm_options::remove);
  const files::path away = base_ / "away";
  files::rename(file, away);
  expect_found("a name");
  files::rename(away, file);
  std::ofstream(file.parent_path() / "n99") << "x";
  expect_found("one that nobody made");
  files::remove(file.parent_path() / "n99");

  const std::string log = LogText();
  ASSERT_GT(log.size(), 2 * kRecordBytes);
  const auto with_log = [&](const std::string& text) {
    std::ofstream(root() + "/" + kLogName) << text;
    return Found();
  };
  EXPECT_FALSE(with_log(log + log.substr(0, kRecordBytes)).empty()) << "appended twice";
  EXPECT_FALSE(with_log(log.substr(kRecordBytes)).empty()) << "a record lost";
  EXPECT_FALSE(with_log(log.substr(0, log.size() - 7)).empty()) << "torn";
  EXPECT_EQ(with_log(log), std::vector<std::string>{}) << "all of it was put back";
}

// An open file that the server has lost takes with it what was not synced, and nothing else.
TEST(ModelTest, ALostOpenFileMakesUnsureWhatWasNotSynced) {
  const auto after = [](bool synced, int error) {
    Model model(0);
    Op op{.number = 1, .kind = Kind::kCreate};
    model.Done(op);
    op.kind = Kind::kWrite;
    op.length = 10;
    model.Done(op);
    op.kind = Kind::kSync;
    if (synced) model.Done(op);
    op.kind = Kind::kClose;
    const Model::FilePtr file = model.Find(op.file);
    model.Unsure(op, error);
    return file->sure();
  };
  EXPECT_FALSE(after(false, ESTALE));
  EXPECT_TRUE(after(true, ESTALE));
  EXPECT_TRUE(after(false, EIO));
}

TEST(ModelTest, WhatIsMissingIsAskedOfTheOpenFileItWasWrittenThrough) {
  Model model(0);
  const Op create{.number = 1, .kind = Kind::kCreate, .slot = 2, .file = 3};
  model.Done(create);
  const Model::FilePtr file = model.Find(create.file);
  EXPECT_EQ(model.UnsyncedSlotOf(file), std::nullopt) << "nothing was written";
  model.Done({.number = 2, .kind = Kind::kWrite, .slot = 2, .length = 10});
  EXPECT_EQ(model.UnsyncedSlotOf(file), 2);
  model.Done({.number = 3, .kind = Kind::kSync, .slot = 2});
  EXPECT_EQ(model.UnsyncedSlotOf(file), std::nullopt) << "it was synced";
}

// Answers that contradict each other, as a server gives them that does something twice.
TEST_F(AcknowledgedTest, WhatIsDoneTwiceIsFound) {
  const auto told = [this](Kind kind, int thread, int error) {
    Journal journal(JournalPath(plan_.journal, thread));
    const Op op{.number = 1, .kind = kind, .file = 7};
    journal.Begin(op);
    journal.End(op, error);
  };
  const auto count = [this] {
    const auto found = Found().size();
    for (int thread = 0; thread < kThreads; ++thread) {
      files::remove(JournalPath(plan_.journal, thread));
    }
    return found;
  };
  std::ofstream(root() + "/" + ClaimName(7));
  told(Kind::kClaim, 0, 0);
  told(Kind::kClaim, 1, EEXIST);
  EXPECT_EQ(count(), 0U);
  told(Kind::kClaim, 0, 0);
  told(Kind::kClaim, 1, 0);
  EXPECT_EQ(count(), 1U) << "made twice";
  told(Kind::kClaim, 0, EEXIST);
  EXPECT_EQ(count(), 2U) << "made by nobody";
  files::rename(root() + "/" + FreeName(7), root() + "/" + TakenName(7, 0));
  told(Kind::kTake, 0, 0);
  told(Kind::kTake, 1, 0);
  EXPECT_EQ(count(), 2U) << "taken twice, and one of them has nothing";
  told(Kind::kTake, 0, 0);
  told(Kind::kTake, 1, ENOENT);
  EXPECT_EQ(count(), 0U);
  files::rename(root() + "/" + TakenName(7, 0), root() + "/" + FreeName(7));
  files::remove(root() + "/" + GiftName(7));
  told(Kind::kGrab, 0, ENOENT);
  EXPECT_EQ(count(), 2U) << "it was there, and nobody had it";
}

// What was not answered may have been done or not, and nothing else.
TEST_F(AcknowledgedTest, WhatIsUnsureMayBeEither) {
  {
    Journal journal(JournalPath(plan_.journal, 0));
    Op op{.number = 1, .kind = Kind::kCreate, .file = 0};
    journal.Begin(op);
    journal.End(op, 0);
    op = {.number = 2, .kind = Kind::kWrite, .offset = 10, .length = 50};
    journal.Begin(op);
  }
  const std::string path = root() + "/" + ThreadDirectory(0) + "/" + FileName(0);
  std::ofstream(path) << "";
  files::permissions(path, files::perms(0644));
  EXPECT_EQ(Found(), std::vector<std::string>{}) << "not done";
  std::ofstream(path) << std::string(10, '\0') + Stamp(0, 2, 10, 50);
  EXPECT_EQ(Found(), std::vector<std::string>{}) << "done";
  std::ofstream(path) << std::string(10, '\0') + Stamp(0, 2, 10, 20);
  EXPECT_EQ(Found(), std::vector<std::string>{}) << "done in part";
  std::ofstream(path) << std::string(10, '\0') + Stamp(0, 2, 10, 50) + "more";
  EXPECT_EQ(Found().size(), 1U) << "more than was written";
  std::ofstream(path) << std::string(10, '\0') + Stamp(0, 3, 10, 50);
  EXPECT_EQ(Found().size(), 1U) << "something else";
}

}  // namespace
}  // namespace rdfs::acknowledged
