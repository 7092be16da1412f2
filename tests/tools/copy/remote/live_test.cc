// Both ends of a copy in one process, over real lanes: what the sanitizers can look into.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/tools/copy/remote/pair.h"
#include "tests/tools/pipe/temp_dir.h"
#include "tests/transport/kinds.h"
#include "tools/copy/file/metadata.h"
#include "tools/copy/remote/caller_impl.h"
#include "tools/copy/remote/door.h"
#include "tools/copy/remote/receiver.h"
#include "tools/copy/remote/sender.h"
#include "tools/copy/remote/sources.h"
#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/session/acceptor.h"
#include "transport/tcp/stream.h"

namespace rdfs::copy {
namespace {

namespace fs = std::filesystem;

// Each name with kind, mode, mtime, size, links and content.
std::map<std::string, std::string> Describe(const std::string& root) {
  std::map<std::string, std::string> out;
  std::map<std::pair<dev_t, ino_t>, std::string> first;
  std::set<fs::path> sorted;
  for (const auto& each : fs::recursive_directory_iterator(root)) sorted.insert(each.path());
  for (const fs::path& path : sorted) {
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0) continue;
    const std::string name = path.string().substr(root.size());
    std::string& text = out[name];
    text = std::to_string(info.st_mode) + " " + std::to_string(info.st_mtim.tv_sec) + "." +
           std::to_string(info.st_mtim.tv_nsec);
    if (S_ISLNK(info.st_mode)) text += " -> " + fs::read_symlink(path).string();
    if (!S_ISREG(info.st_mode)) continue;
    text += " " + std::to_string(info.st_size) + " " +
            std::to_string(std::hash<std::string>()(ContentOf(path)));
    if (info.st_nlink > 1)
      text += " = " + first.try_emplace({info.st_dev, info.st_ino}, name).first->second;
  }
  return out;
}

struct Ends {
  Status sent, received;
  Tally done;
  std::vector<std::string> notices;  // "path: sentence", at the caller
  bool sender_moved = false, receiver_moved = false;
  // Of all that there is to do, and what each end calls done.
  Totals counted, sender_did, receiver_did;
};

class CopyLive : public testing::TestWithParam<transport::Kind> {
 protected:
  void SetUp() override {
    fs::create_directory(dir_ / "src");
    fs::create_directory(dir_ / "dst");
  }

  static std::string Noise(std::size_t size) {
    std::mt19937 random(static_cast<unsigned>(size));
    std::string out(size, '\0');
    std::ranges::generate(out, [&] { return static_cast<char>(random()); });
    return out;
  }

  // The far end sends `asked`, the caller receives into `destination`.
  Ends Copy(const std::vector<std::string>& asked, const std::string& destination,
            const Keep& keep = Keep::All(), bool in_place = false, bool sync = false) {
    Ends out;
    Pair pair(moves_at_ ? transport::Kind::kTcp : GetParam());
    EXPECT_EQ(pair.problem(), "");
    if (!pair.problem().empty()) return out;
    if (moves_at_) {
      const Status second = pair.OpenSecond(GetParam());
      EXPECT_TRUE(second.ok()) << second.message();
      if (!second.ok()) return out;
    }
    std::vector<Pair::Other> others;
    for (int i = 0; i < further_; ++i) {
      auto lanes = pair.OpenOther(GetParam());
      EXPECT_TRUE(lanes.ok()) << lanes.status().message();
      if (!lanes.ok()) return out;
      others.push_back(*std::move(lanes));
    }
    // One each turn.
    const auto further = [&others](std::unique_ptr<transport::Connection> Pair::Other::*end) {
      return [&others, end, turn = 0U]() mutable -> std::unique_ptr<transport::Connection> {
        const unsigned now = turn++;
        return now % 2 == 0 && now / 2 < others.size() ? std::move(others[now / 2].*end) : nullptr;
      };
    };
    // Each end sees its end of the better lane at a turn of its own.
    const auto better = [&](const std::unique_ptr<transport::Connection>& lane, int turns) {
      return [&lane, turns]() mutable { return turns-- > 0 ? nullptr : lane.get(); };
    };
    std::thread far([&] {
      TalkSettings far_settings;
      if (moves_at_) far_settings.better = better(pair.far_second, moves_at_->first);
      Talk talk(*pair.far.lane, std::move(far_settings));
      const Found found =
          FindSources(asked, false, true, [&](const std::string& path, const Status& why) {
            (void)talk.Tell({Notice::What::kFailed, path, why.message()});
          });
      WalkOptions walk;
      walk.scan.recurse = true;
      walk.keep = keep;
      walk.paths = found.paths;
      walk.holes = !in_place;
      walk.offers = sync;
      if (set_walk_) set_walk_(walk);
      out.counted = Counted(walk);
      std::atomic<std::uint64_t> copied{0};
      walk.copied = [&](const Entry& entry, const std::string&) {
        if (entry.kind != Kind::kDirectory) ++copied;
      };
      Sender sender(talk, pair.far.domain, found.begin, std::move(walk), 3);
      if (further_ > 0) sender.further = further(&Pair::Other::far);
      out.sent = sender.Run();
      out.sender_did = {copied + sender.passed().files,
                        sender.bytes() + sender.kept() + sender.passed().bytes};
      out.sender_moved = talk.moved();
      pair.far.lane.reset();
    });
    TalkSettings told;
    told.tell = [&](const Notice& notice) {
      out.notices.push_back(notice.path + ": " + notice.sentence);
    };
    if (moves_at_) told.better = better(pair.caller_second, moves_at_->second);
    Talk talk(*pair.caller_lane, std::move(told));
    ReceiverSettings settings;
    settings.destination = destination;
    settings.options.keep = keep;
    settings.options.in_place = in_place;
    settings.allow = [&](const Begin& begin, std::uint64_t failures) {
      return CheckSources(asked, begin, failures);
    };
    settings.threads = 3;
    settings.asked.recurse = true;
    settings.policy.sync = sync;
    settings.remove = sync;
    if (set_receiver_) set_receiver_(settings);
    const int copied_before = copied_;
    settings.copied = [&](const Entry& entry, const std::string&) {
      if (entry.kind != Kind::kDirectory) ++copied_;
    };
    const bool dry_run = settings.dry_run;
    settings.gone = [&](const std::string& path) { gone_.push_back(path); };
    Receiver receiver(talk, pair.caller_domain, std::move(settings));
    if (further_ > 0) receiver.further = further(&Pair::Other::caller);
    using std::chrono_literals::operator""s;
    receiver.on_turn = [deadline = DeadlineAfter(120s)] {
      return BootClock::now() < deadline ? Status() : Status(Code::kDeadlineExceeded, "it hangs");
    };
    out.received = receiver.Run();
    out.done = receiver.done();
    out.receiver_did = {
        static_cast<std::uint64_t>(copied_ - copied_before) + receiver.passed().files,
        receiver.bytes() + receiver.kept() + receiver.passed().bytes};
    out.receiver_moved = talk.moved();
    pair.caller_lane.reset();
    far.join();
    if (!dry_run) ExpectAllCounted(out);
    return out;
  }
  static Totals Counted(const WalkOptions& walk) {
    std::atomic<std::uint64_t> files{0};
    std::atomic<std::uint64_t> bytes{0};
    CountOf(walk)(files, bytes, std::atomic<bool>(false));
    return {files, bytes};
  }
  // Progress ends where it has counted to, at either end, however much was there already.
  static void ExpectAllCounted(const Ends& ends) {
    if (!ends.sent.ok() || !ends.received.ok() || !ends.notices.empty()) return;
    for (const Totals& did : {ends.sender_did, ends.receiver_did}) {
      EXPECT_EQ(did.files, ends.counted.files);
      // Of one that says that it is empty, and is not, nobody knows before.
      EXPECT_TRUE(did.bytes == ends.counted.bytes || ends.counted.bytes == 0) << did.bytes;
    }
  }
  void ExpectCopied(const Ends& ends) {
    EXPECT_TRUE(ends.sent.ok()) << ends.sent.message();
    EXPECT_TRUE(ends.received.ok()) << ends.received.message();
    EXPECT_EQ(ends.notices, std::vector<std::string>{});
    EXPECT_EQ(Describe(dir_ / "dst/src"), Describe(dir_ / "src"));
  }

  pipe::TempDir dir_;
  // Begin over tcp, and move where the sender's and the receiver's turns are so many.
  std::optional<std::pair<int, int>> moves_at_;
  int further_ = 0;  // lanes that carry batches
  std::function<void(WalkOptions&)> set_walk_;
  std::function<void(ReceiverSettings&)> set_receiver_;
  std::atomic<int> copied_{0};     // but directories
  std::vector<std::string> gone_;  // deleted
};

TEST_P(CopyLive, SizesAtEveryBoundary) {
  for (const std::size_t size : {0UL, 1UL, 4095UL, 4096UL, 4097UL, (256UL << 10) - 1, 256UL << 10,
                                 (256UL << 10) + 1, (1UL << 20) - 24, (1UL << 20) - 4096,
                                 (1UL << 20) - 1, 1UL << 20, (1UL << 20) + 1, (5UL << 20) + 7}) {
    dir_.Write("src/size-" + std::to_string(size), Noise(size));
  }
  const Ends ends = Copy({dir_ / "src"}, dir_ / "dst");
  ExpectCopied(ends);
  EXPECT_EQ(ends.done.entries, 14U) << "and no directory";
}

TEST_P(CopyLive, ManySmallFilesInManyDirectories) {
  for (int folder = 0; folder < 40; ++folder) {
    const std::string name = "src/d" + std::to_string(folder % 8) + "/d" + std::to_string(folder);
    fs::create_directories(dir_ / name);
    for (int file = 0; file < 60; ++file) {
      dir_.Write(name + "/f" + std::to_string(file), Noise(static_cast<std::size_t>(file * 37)));
    }
  }
  ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
}

TEST_P(CopyLive, MovesToABetterLaneInTheMiddle) {
  for (int file = 0; file < 300; ++file) {
    dir_.Write("src/f" + std::to_string(file), Noise(static_cast<std::size_t>(file * 97)));
  }
  for (const std::size_t size : {(12UL << 20) + 1, 20UL << 20}) {
    dir_.Write("src/large-" + std::to_string(size), Noise(size));
  }
  for (const auto& turns : {std::pair{0, 0}, {0, 9}, {9, 0}, {1, 2}, {14, 15}, {30, 25}}) {
    moves_at_ = turns;
    const Ends ends = Copy({dir_ / "src"}, dir_ / "dst");
    ExpectCopied(ends);
    EXPECT_EQ(ends.sender_moved, ends.receiver_moved);
    EXPECT_TRUE(ends.sender_moved || turns.first + turns.second > 9);
    fs::remove_all(dir_ / "dst/src");
  }
}

TEST_P(CopyLive, FurtherLanesBringBatchesInAnyOrder) {
  for (int file = 0; file < 300; ++file) {
    dir_.Write("src/f" + std::to_string(file), Noise(static_cast<std::size_t>(file * 97)));
  }
  for (const std::size_t size : {(12UL << 20) + 1, 40UL << 20}) {
    dir_.Write("src/large-" + std::to_string(size), Noise(size));
  }
  for (const int lanes : {1, 3, 7}) {
    further_ = lanes;
    ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
    fs::remove_all(dir_ / "dst/src");
  }
}

// Little is copied: the lanes come as it ends, or behind.
TEST_P(CopyLive, FurtherLanesAsEverythingEnds) {
  dir_.Write("src/f", "content");
  for (int turn = 0; turn < 12; ++turn) {
    further_ = 1 + turn % 3;
    ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
    fs::remove_all(dir_ / "dst/src");
  }
}

TEST_P(CopyLive, AMoveAndThenFurtherLanes) {
  dir_.Write("src/large", Noise(30 << 20));
  for (const auto& turns : {std::pair{0, 0}, {3, 9}, {9, 3}}) {
    moves_at_ = turns;
    further_ = 2;
    ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
    fs::remove_all(dir_ / "dst/src");
  }
}

TEST_P(CopyLive, AMoveAsEverythingEndsLosesNothing) {
  dir_.Write("src/f", "content");
  for (int turn = 0; turn < 12; ++turn) {
    moves_at_ = {turn % 4, turn / 2};
    ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
    fs::remove_all(dir_ / "dst/src");
  }
}

// Their names are more than one message holds.
TEST_P(CopyLive, MoreSourcesThanOneMessageHolds) {
  constexpr std::size_t kFiles = 700;
  for (std::size_t file = 0; file < kFiles; ++file) {
    dir_.Write("src/" + std::string(200, 'n') + std::to_string(file), "x");
  }
  const Ends ends = Copy({dir_ / "src/n*"}, dir_ / "dst");
  EXPECT_TRUE(ends.sent.ok()) << ends.sent.message();
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  EXPECT_EQ(Describe(dir_ / "dst").size(), kFiles);
}

TEST_P(CopyLive, LinksModesTimesAndSpecials) {
  dir_.Write("src/a", "linked");
  fs::create_directory(dir_ / "src/d");
  ASSERT_EQ(link((dir_ / "src/a").c_str(), (dir_ / "src/d/b").c_str()), 0);
  ASSERT_EQ(symlink("../nowhere", (dir_ / "src/d/dangling").c_str()), 0);
  ASSERT_EQ(mkfifo((dir_ / "src/fifo").c_str(), 0640), 0);
  dir_.Write("src/\xff\n \x1b[31m", "an odd name");
  dir_.Write("src/" + std::string(255, 'n'), "a long name");
  ASSERT_EQ(chmod((dir_ / "src/a").c_str(), 04751), 0);
  const timespec times[2] = {{-5, 1}, {-86400, 123456789}};
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ / "src/a").c_str(), times, 0), 0);
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ / "src/d").c_str(), times, 0), 0);
  ASSERT_EQ(chmod((dir_ / "src/d").c_str(), 0500), 0);
  ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
  ASSERT_EQ(chmod((dir_ / "src/d").c_str(), 0700), 0);
  ASSERT_EQ(chmod((dir_ / "dst/src/d").c_str(), 0700), 0);
}

// As from here to here: the directories become one, and of what both have the later stays, however
// long the files before it take.
TEST_P(CopyLive, OfSeveralSourcesOfOneNameTheLaterStays) {
  const std::string large = Noise(9 << 20);
  for (const std::string source : {"a", "b", "c"}) {
    fs::create_directories(dir_ / source + "/x/d");
    dir_.Write(source + "/x/large", large + source);
    dir_.Write(source + "/x/small", source);
    dir_.Write(source + "/x/d/of " + source, source);
    for (int file = 0; file < 50; ++file) {
      dir_.Write(source + "/x/d/f" + std::to_string(file), source);
    }
    // Also where the clock ticks seldom no two have one time.
    for (const auto& each : fs::recursive_directory_iterator(dir_ / source)) {
      fs::last_write_time(each, fs::file_time_type::clock::now() + std::chrono::seconds(source[0]));
    }
  }
  const auto expect_last = [&] {
    EXPECT_TRUE(dir_.Read("dst/x/large") == large + "c");
    EXPECT_EQ(dir_.Read("dst/x/small"), "c");
    for (const std::string source : {"a", "b", "c"}) {
      EXPECT_EQ(dir_.Read("dst/x/d/of " + source), source);
    }
    for (int file = 0; file < 50; ++file) {
      EXPECT_EQ(dir_.Read("dst/x/d/f" + std::to_string(file)), "c");
    }
  };
  const std::vector<std::string> of_one_name{dir_ / "a/x", dir_ / "b/x", dir_ / "c/x"};
  const std::vector<std::string> into_dst{dir_ / "a/x/.", dir_ / "b/x/.", dir_ / "c/x/."};
  set_receiver_ = [](ReceiverSettings& settings) { settings.remove = false; };
  for (const bool offers : {false, true}) {
    for (const bool into : {false, true}) {
      const std::string destination = into ? dir_ / "dst/x" : dir_ / "dst";
      if (into) fs::create_directory(destination);
      const Ends ends =
          Copy(into ? into_dst : of_one_name, destination, Keep::Attributes(), false, offers);
      EXPECT_TRUE(ends.sent.ok()) << ends.sent.message();
      EXPECT_TRUE(ends.received.ok()) << ends.received.message();
      EXPECT_EQ(ends.notices, std::vector<std::string>{});
      expect_last();
      fs::remove_all(dir_ / "dst/x");
    }
  }
}

// Nor does a link lead to what a later one has put there.
TEST_P(CopyLive, OfSeveralSourcesOfOneNameLinksStayTrue) {
  for (const std::string source : {"a", "b"}) fs::create_directories(dir_ / source + "/x");
  for (int i = 0; i < 10; ++i) {
    const std::string name = "/x/" + std::to_string(i);
    dir_.Write("a" + name, "of a");
    for (const std::string other : {"x", "y"}) {
      ASSERT_EQ(link((dir_ / "a" + name).c_str(), (dir_ / "b" + name + other).c_str()), 0);
    }
    dir_.Write("b" + name, "also of b");
  }
  set_receiver_ = [](ReceiverSettings& settings) { settings.remove = false; };
  for (const bool offers : {false, true}) {
    for (const bool in_place : {false, true}) {
      const Ends ends =
          Copy({dir_ / "a/x", dir_ / "b/x"}, dir_ / "dst", Keep::All(), in_place, offers);
      EXPECT_TRUE(ends.received.ok()) << ends.received.message();
      EXPECT_EQ(ends.notices, std::vector<std::string>{});
      for (int i = 0; i < 10; ++i) {
        const std::string name = "dst/x/" + std::to_string(i);
        EXPECT_EQ(dir_.Read(name), "also of b");
        EXPECT_EQ(dir_.Read(name + "x"), "of a");
        EXPECT_EQ(dir_.Read(name + "y"), "of a");
      }
      fs::remove_all(dir_ / "dst/x");
    }
  }
}

// With -u, too: what is older than what an earlier source has brought is not copied.
TEST_P(CopyLive, OfSeveralSourcesOfOneNameTheNewerStays) {
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  for (const std::string source : {"a", "b"}) {
    fs::create_directories(dir_ / source + "/x");
    for (const std::string name : {"of a", "of b"}) dir_.Write(source + "/x/" + name, source);
  }
  for (const std::string path : {"b/x/of a", "a/x/of b"}) {
    ASSERT_EQ(utimensat(AT_FDCWD, (dir_ / path).c_str(), old, 0), 0);
  }
  set_walk_ = [](WalkOptions& walk) { walk.offers = true; };
  set_receiver_ = [](ReceiverSettings& settings) { settings.policy.update = true; };
  const Ends ends = Copy({dir_ / "a/x", dir_ / "b/x"}, dir_ / "dst", Keep::Attributes());
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  EXPECT_EQ(ends.notices, std::vector<std::string>{});
  EXPECT_EQ(dir_.Read("dst/x/of a"), "a");
  EXPECT_EQ(dir_.Read("dst/x/of b"), "b");
}

// Copy holds it of each copy; here of those that leave most of it as it is.
TEST_P(CopyLive, ProgressCountsWhatNeedsNoCopying) {
  fs::create_directory(dir_ / "src/d");
  for (const std::string name : {"a", "b", "d/c", "d/x.o"}) dir_.Write("src/" + name, Noise(5000));
  dir_.Write("src/large", Noise(3 << 20));
  ASSERT_EQ(link((dir_ / "src/large").c_str(), (dir_ / "src/d/large too").c_str()), 0);
  ASSERT_EQ(symlink("a", (dir_ / "src/symlink").c_str()), 0);
  const Fd sparse(open((dir_ / "src/sparse").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  ASSERT_EQ(ftruncate(sparse.get(), 6 << 20), 0);
  ASSERT_EQ(pwrite(sparse.get(), "x", 1, 4 << 20), 1);
  ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
  dir_.Write("src/b", "changed");
  ASSERT_EQ(pwrite(sparse.get(), "x", 1, 5 << 20), 1);
  for (const bool update : {false, true}) {
    set_receiver_ = [&](ReceiverSettings& settings) { settings.policy.update = update; };
    const Ends ends = Copy({dir_ / "src"}, dir_ / "dst", Keep::All(), false, true);
    ExpectCopied(ends);
    EXPECT_LT(ends.done.bytes, 1U << 20);
    EXPECT_EQ(ends.counted.files, 8U);
  }
  Rules rules;
  rules.Add(false, "*.o");
  Rules same;
  same.Add(false, "*.o");
  set_walk_ = [&](WalkOptions& walk) { walk.scan.filter = &rules; };
  set_receiver_ = [&](ReceiverSettings& settings) { settings.asked.filter = &same; };
  EXPECT_EQ(Copy({dir_ / "src"}, dir_ / "dst").counted.files, 7U);
}

TEST_P(CopyLive, GoesOnWhereItWasInterrupted) {
  const std::string content = Noise(5 << 20);
  dir_.Write("src/large", content);
  struct stat info {};
  ASSERT_EQ(stat((dir_ / "src/large").c_str(), &info), 0);
  fs::create_directory(dir_ / "dst/src");
  // By the rule that every receiver has: the first and the fourth MiB are there.
  const auto interrupt = [&] {
    auto before = Destination::Open(dir_ / "dst/src", {.keep = Keep::All(), .resume = true});
    Entry entry = EntryOf(info);
    entry.path = "large";
    ASSERT_TRUE(before.ok() && (*before)->AddTarget(0, "").ok());
    auto file = (*before)->Begin(entry);
    ASSERT_TRUE(file.ok());
    for (const std::size_t at : {0UL, 3UL << 20}) {
      ASSERT_TRUE((*file)->Write(at, AsBytes(std::string_view(content).substr(at, 1 << 20))).ok());
    }
  };
  set_walk_ = [](WalkOptions& walk) { walk.resume = true; };
  set_receiver_ = [](ReceiverSettings& settings) {
    settings.options.resume = true;
    settings.verify = true;
  };
  interrupt();
  Ends ends = Copy({dir_ / "src"}, dir_ / "dst", Keep::All(), false, true);
  ExpectCopied(ends);
  EXPECT_EQ(ends.done.bytes, 3U << 20);
  EXPECT_EQ(gone_, std::vector<std::string>{});
  // And over when the source is another.
  ASSERT_EQ(unlink((dir_ / "dst/src/large").c_str()), 0);
  interrupt();
  ASSERT_EQ(chmod((dir_ / "src/large").c_str(), 0600), 0);
  ends = Copy({dir_ / "src"}, dir_ / "dst", Keep::All(), false, true);
  ExpectCopied(ends);
  EXPECT_EQ(ends.done.bytes, 5U << 20);
}

// Status 24, not 1: a tree that is in use is copied as well as it can be.
TEST(CopyWalk, AFileThatVanishesMeanwhileIsToldAsThat) {
  const pipe::TempDir dir;
  dir.Write("f", "x");
  WalkOptions options;
  options.paths = {dir / "f"};
  options.slot_bytes = 1 << 20;
  options.offers = true;
  Report report({.name = "rdcp"}, BootClock::now());
  Walk walk(options, [&](const Notice& notice) {
    const auto there = Notice::Decode(notice.Encode());
    ASSERT_TRUE(there.ok());
    SettingsFor(report, -1).tell(*there);
  });
  ASSERT_TRUE(walk.Next().has_value());
  fs::remove(dir / "f");
  ASSERT_TRUE(walk.Answered({1, {0}}).ok());
  // Opened to be packed, or in the walk itself if it is large.
  auto task = walk.Next();
  ASSERT_TRUE(task && task->items.size() == 1);
  const auto opened = walk.Open(task->items[0].scanned);
  ASSERT_FALSE(opened.ok());
  walk.TellOf(task->items[0].scanned.entry, opened.status());
  EXPECT_EQ(report.ExitCode(), kExitVanished);
}

// Names of 255 bytes, one in the other, until a path has more bytes than a record can hold.
TEST(CopyWalk, WhatNoRecordHoldsIsNamedAndTheRestGoesOn) {
  const pipe::TempDir dir;
  const std::string name(255, 'd');
  Fd at(open((dir / ".").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int depth = 0; depth < 257; ++depth) {
    ASSERT_EQ(mkdirat(at.get(), name.c_str(), 0755), 0);
    at = Fd(openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at.valid());
  }
  dir.Write("behind", "x");
  WalkOptions options;
  options.scan.recurse = true;
  options.paths = {dir / "."};
  options.slot_bytes = 1 << 20;
  std::vector<std::string> told;
  Walk walk(options, [&](const Notice& notice) { told.push_back(notice.sentence); });
  std::set<std::string> names;
  std::vector<std::byte> slot(options.slot_bytes);
  while (const auto task = walk.Next()) {
    BatchWriter batch(slot);
    for (const WalkItem& item : task->items) {
      EXPECT_TRUE(item.what == WalkItem::What::kLeave ||
                  batch.Add(item.scanned.entry, item.number, item.flags));
      names.insert(item.scanned.entry.path);
    }
  }
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("too long"), std::string::npos) << told[0];
  EXPECT_TRUE(names.contains("behind"));
  EXPECT_EQ(names.size(), 258U) << "the root, 256 directories and a file";
}

// Between the offer and its answer: what the receiver has is of the file that was offered.
TEST(CopyWalk, AFileThatChangesMeanwhileStartsOver) {
  const pipe::TempDir dir;
  dir.Write("large", std::string(1 << 20, 'a'));
  dir.Write("other", std::string(1 << 20, 'a'));
  WalkOptions options;
  options.paths = {dir / "large", dir / "other"};
  options.slot_bytes = 1 << 20;
  options.offers = options.resume = true;
  Walk walk(options, [](const Notice& notice) { ADD_FAILURE() << notice.sentence; });
  auto task = walk.Next();
  ASSERT_TRUE(task && task->items.size() == 2);
  EXPECT_EQ(task->items[0].flags, EntryWire::kOffer | EntryWire::kResumable);
  EXPECT_FALSE(walk.Has({0, {{0, (1 << 20) + 1}}}).ok());
  EXPECT_FALSE(walk.Has({2, {{0, 1}}}).ok());
  ASSERT_TRUE(walk.Has({0, {{0, 700'000}}}).ok());
  ASSERT_TRUE(walk.Has({1, {{4096, 1'000'000}}}).ok());
  ASSERT_TRUE(walk.Answered({2, {0, 1}}).ok());
  dir.Write("large", std::string(1 << 20, 'b'));
  std::map<std::string, std::uint64_t> pieces;
  std::map<std::string, std::uint16_t> flags;
  while ((task = walk.Next())) {
    for (const WalkItem& item : task->items) {
      if (item.large != nullptr) flags[item.large->path] = item.flags;
    }
    for (const WalkPiece& piece : task->pieces) {
      pieces[piece.file->path] += piece.length;
      walk.PieceRead(piece, {});
    }
  }
  EXPECT_EQ(flags[dir / "large"], EntryWire::kAnswer | EntryWire::kResumable);
  EXPECT_EQ(pieces[dir / "large"], 1U << 20);
  EXPECT_EQ(flags[dir / "other"], EntryWire::kAnswer | EntryWire::kResumable | EntryWire::kGoesOn);
  EXPECT_EQ(pieces[dir / "other"], (1U << 20) - 1'000'000);
  EXPECT_EQ(walk.kept(), 1'000'000U);
}

TEST_P(CopyLive, AFileThatSaysItIsEmptyIsReadToItsEnd) {
  struct stat info {};
  ASSERT_EQ(stat("/proc/version", &info), 0);
  ASSERT_EQ(info.st_size, 0);
  for (const bool sync : {false, true}) {
    const Ends ends = Copy({"/proc/version"}, dir_ / "dst", {}, false, sync);
    EXPECT_TRUE(ends.received.ok()) << ends.received.message();
    EXPECT_EQ(ends.notices, std::vector<std::string>{});
    EXPECT_EQ(dir_.Read("dst/version"), ContentOf("/proc/version"));
    fs::remove(dir_ / "dst/version");
  }
}

TEST_P(CopyLive, ASmallFileThatIsShorterThanItWasIsNotTaken) {
  const char* const kShorter = "/sys/devices/system/cpu/online";
  struct stat info {};
  if (stat(kShorter, &info) != 0 || info.st_size == 0) GTEST_SKIP() << "there is no " << kShorter;
  const Ends ends = Copy({kShorter}, dir_ / "dst", {});
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  ASSERT_EQ(ends.notices.size(), 1U);
  EXPECT_NE(ends.notices[0].find("shorter"), std::string::npos) << ends.notices[0];
  EXPECT_TRUE(fs::is_empty(dir_ / "dst"));
}

// With -x; what is mounted at /proc on every machine is not read.
TEST(CopyWalk, ADirectoryThatIsNotReadIsNotAllThereIs) {
  Listed only_proc(nullptr);
  ASSERT_TRUE(only_proc.Add("proc").ok());
  WalkOptions options;
  options.paths = {"/"};
  options.slot_bytes = 1 << 20;
  options.scan = {.recurse = true, .one_file_system = true, .filter = &only_proc};
  options.unsent = [](const std::string& path) { ADD_FAILURE() << path; };
  Walk walk(options, [](const Notice& notice) { ADD_FAILURE() << notice.sentence; });
  std::map<std::string, bool> partial;
  while (const auto task = walk.Next()) {
    for (const WalkItem& item : task->items) {
      if (item.what == WalkItem::What::kLeave) partial[item.scanned.entry.path] = item.partial;
    }
  }
  EXPECT_EQ(partial, (std::map<std::string, bool>{{"", false}, {"proc", true}}));
}

// And that is said, at either end.
TEST_P(CopyLive, WhereSomethingWasLeftOutNothingIsDeleted) {
  fs::create_directories(dir_ / "src/whole");
  dir_.Write("src/f", "f");
  ASSERT_EQ(mkfifo((dir_ / "src/p").c_str(), 0644), 0);
  for (const bool dry_run : {true, false}) {
    fs::create_directories(dir_ / "dst/src/whole");
    dir_.Write("dst/src/extra", "x");
    dir_.Write("dst/src/whole/extra", "x");
    std::vector<std::string> said_there;
    std::vector<std::string> said_here;
    set_walk_ = [&](WalkOptions& walk) {
      walk.unsent = [&](const std::string& path) { said_there.push_back(path); };
    };
    set_receiver_ = [&](ReceiverSettings& settings) {
      settings.dry_run = dry_run;
      settings.unsent = [&](const std::string& path) { said_here.push_back(path); };
    };
    const Ends ends = Copy({dir_ / "src"}, dir_ / "dst", Keep::Attributes(), false, true);
    EXPECT_TRUE(ends.received.ok()) << ends.received.message();
    EXPECT_EQ(said_there, std::vector<std::string>{dir_ / "src"});
    EXPECT_EQ(said_here.size(), 1U);
    EXPECT_EQ(dir_.Read("dst/src/extra"), "x");
    EXPECT_EQ(fs::exists(dir_ / "dst/src/whole/extra"), dry_run);
  }
}

TEST_P(CopyLive, HolesStayHoles) {
  const Fd fd(open((dir_ / "src/sparse").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  ASSERT_EQ(ftruncate(fd.get(), 1L << 33), 0);
  ASSERT_EQ(pwrite(fd.get(), "x", 1, 5 << 20), 1);
  ASSERT_EQ(pwrite(fd.get(), "y", 1, (1L << 33) - 1), 1);
  const Ends ends = Copy({dir_ / "src"}, dir_ / "dst");
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  struct stat info {};
  ASSERT_EQ(stat((dir_ / "dst/src/sparse").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 1L << 33);
  EXPECT_LT(info.st_blocks, 1000);
  const Fd copy(open((dir_ / "dst/src/sparse").c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  EXPECT_EQ(pread(copy.get(), &byte, 1, 5 << 20), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(pread(copy.get(), &byte, 1, (1L << 33) - 1), 1);
  EXPECT_EQ(byte, 'y');
}

TEST_P(CopyLive, WrittenInPlaceHolesBecomeZeros) {
  fs::create_directory(dir_ / "dst/src");
  dir_.Write("dst/src/f", std::string(2 << 20, 'o'));
  const Fd fd(open((dir_ / "src/f").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  ASSERT_EQ(ftruncate(fd.get(), 1 << 20), 0);
  ASSERT_EQ(pwrite(fd.get(), "x", 1, 600'000), 1);
  ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst", Keep::All(), true));
}

TEST_P(CopyLive, WhatFailsIsNamedAndTheRestGoesOn) {
  dir_.Write("src/good", "good");
  fs::create_directories(dir_ / "dst/src/in-the-way");
  dir_.Write("src/in-the-way", "a file");
  fs::create_directory(dir_ / "src/folder");
  dir_.Write("src/folder/beneath", "x");
  dir_.Write("dst/src/folder", "a file where a directory should be");
  const Ends ends = Copy({dir_ / "src", dir_ / "none"}, dir_ / "dst");
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  EXPECT_EQ(dir_.Read("dst/src/good"), "good");
  ASSERT_EQ(ends.notices.size(), 3U);
  const auto says = [&](const std::string& words) {
    return std::ranges::any_of(ends.notices, [&](const std::string& notice) {
      return notice.find(words) != std::string::npos;
    });
  };
  EXPECT_TRUE(says("none")) << "there is no such file at the far end";
  EXPECT_TRUE(says("in-the-way"));
  EXPECT_TRUE(says("folder")) << "once, and not for all that is in it";
}

// Nobody waits for the answer to what was offered beneath it.
TEST_P(CopyLive, WhatIsOfferedBeneathADirectoryThatCannotBeMadeIsAnswered) {
  fs::create_directories(dir_ / "src/folder/deeper");
  dir_.Write("src/folder/beneath", "x");
  dir_.Write("src/folder/deeper/beneath", "x");
  fs::create_directory(dir_ / "dst/src");
  dir_.Write("dst/src/folder", "a file where a directory should be");
  const Ends ends = Copy({dir_ / "src"}, dir_ / "dst", Keep::All(), false, true);
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  EXPECT_TRUE(ends.sent.ok()) << ends.sent.message();
  EXPECT_EQ(ends.notices.size(), 1U);
  EXPECT_EQ(ends.done.failed, 1U);
}

// --sync --delete: only what differs is sent, and what is gone there goes.
TEST_P(CopyLive, WhatIsThereIsNotSentAgain) {
  for (int folder = 0; folder < 30; ++folder) {
    const std::string name = "src/d" + std::to_string(folder);
    fs::create_directories(dir_ / name);
    for (int file = 0; file < 50; ++file) dir_.Write(name + "/f" + std::to_string(file), "content");
  }
  dir_.Write("src/large", Noise(3 << 20));
  ASSERT_EQ(link((dir_ / "src/large").c_str(), (dir_ / "src/d3/large too").c_str()), 0);
  ASSERT_EQ(symlink("f1", (dir_ / "src/d3/link").c_str()), 0);
  ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst", Keep::All(), false, true));
  EXPECT_EQ(copied_, 30 * 50 + 3);
  copied_ = 0;
  const Ends again = Copy({dir_ / "src"}, dir_ / "dst", Keep::All(), false, true);
  ExpectCopied(again);
  EXPECT_EQ(copied_, 0);
  EXPECT_EQ(again.done.bytes, 0U);

  dir_.Write("src/d7/f7", "another content");
  dir_.Write("src/large", Noise(2 << 20));
  fs::remove_all(dir_ / "src/d8");
  dir_.Write("dst/src/d9/extra", "what the source does not have");
  const Ends changed = Copy({dir_ / "src"}, dir_ / "dst", Keep::All(), false, true);
  ExpectCopied(changed);
  EXPECT_EQ(changed.done.bytes, (2U << 20) + 15);
  std::ranges::sort(gone_);
  EXPECT_EQ(gone_, (std::vector<std::string>{"src/d8", "src/d9/extra"}));
}

// --checksum: times do not matter, and content does.
TEST_P(CopyLive, OnlyWhatHasAnotherContentIsSent) {
  dir_.Write("src/same", "same");
  dir_.Write("src/other", "abcd");
  dir_.Write("src/large", Noise(3 << 20));
  dir_.Write("src/longer", "longer");
  ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
  dir_.Write("dst/src/other", "damn");
  dir_.Write("dst/src/longer", "long");
  const timespec times[2] = {{0, 0}, {86400, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ / "dst/src/same").c_str(), times, 0), 0);
  set_walk_ = [](WalkOptions& walk) { walk.offers = walk.digests = true; };
  set_receiver_ = [](ReceiverSettings& settings) {
    settings.policy.checksum = true;
    settings.verify = true;
  };
  copied_ = 0;
  const Ends ends = Copy({dir_ / "src"}, dir_ / "dst");
  ExpectCopied(ends);
  EXPECT_EQ(copied_, 2);
  EXPECT_EQ(ends.done.bytes, 10U);
}

TEST_P(CopyLive, ADryRunChangesNothingAndTellsAll) {
  dir_.Write("src/a", "1");
  fs::create_directory(dir_ / "src/d");
  dir_.Write("src/d/b", "2");
  ASSERT_EQ(symlink("a", (dir_ / "src/link").c_str()), 0);
  fs::create_directory(dir_ / "dst/src");
  dir_.Write("dst/src/extra", "goes");
  set_walk_ = [](WalkOptions& walk) { walk.offers = true; };
  set_receiver_ = [](ReceiverSettings& settings) { settings.dry_run = settings.remove = true; };
  Ends ends = Copy({dir_ / "src"}, dir_ / "dst");
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  EXPECT_TRUE(ends.sent.ok()) << ends.sent.message();
  std::ranges::sort(ends.notices);
  const std::string dst = dir_ / "dst";
  EXPECT_EQ(ends.notices,
            (std::vector<std::string>{dst + "/src/a: ", dst + "/src/d/: ", dst + "/src/d/b: ",
                                      dst + "/src/link: ", "src/extra: "}));
  EXPECT_EQ(ends.done.failed, 0U);
  EXPECT_EQ(Describe(dir_ / "dst").size(), 2U);
}

TEST_P(CopyLive, WhatIsListedAndMissingIsTold) {
  dir_.Write("src/a", "1");
  fs::create_directory(dir_ / "src/d");
  dir_.Write("src/d/b", "2");
  dir_.Write("src/d/c", "3");
  Listed list(nullptr);
  for (const char* path : {"d/b", "none"}) ASSERT_TRUE(list.Add(path).ok());
  set_walk_ = [&](WalkOptions& walk) {
    walk.scan.filter = &list;
    walk.list = &list;
  };
  const Ends ends = Copy({dir_ / "src"}, dir_ / "dst");
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  ASSERT_EQ(ends.notices.size(), 1U);
  EXPECT_TRUE(ends.notices[0].starts_with("none: ")) << ends.notices[0];
  EXPECT_EQ(Describe(dir_ / "dst").size(), 3U) << "src, src/d, src/d/b";
}

TEST_P(CopyLive, ALimitTakesItsTime) {
  dir_.Write("src/large", Noise(5 << 20));
  set_walk_ = [](WalkOptions& walk) { walk.limit = 16 << 20; };
  const TimePoint start = BootClock::now();
  ExpectCopied(Copy({dir_ / "src"}, dir_ / "dst"));
  // All but the last batch, whose time is behind it.
  EXPECT_GE(BootClock::now() - start, std::chrono::milliseconds(240));
}

TEST_P(CopyLive, OneFileUnderANewName) {
  dir_.Write("src/f", "content");
  const Ends ends = Copy({dir_ / "src/f"}, dir_ / "dst/g");
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  EXPECT_EQ(dir_.Read("dst/g"), "content");
}

TEST_P(CopyLive, WhatDstCannotBeEndsBothEnds) {
  dir_.Write("src/f", "content");
  const Ends ends = Copy({dir_ / "src", dir_ / "src/f"}, dir_ / "dst/none");
  EXPECT_FALSE(ends.received.ok());
  EXPECT_FALSE(ends.sent.ok());
  EXPECT_EQ(ends.sent.message(), ends.received.message()) << "the peer is told the same";
}

TEST_P(CopyLive, NothingAtAll) {
  const Ends ends = Copy({dir_ / "none"}, dir_ / "dst");
  EXPECT_TRUE(ends.received.ok()) << ends.received.message();
  EXPECT_EQ(ends.notices.size(), 1U);
  EXPECT_TRUE(fs::is_empty(dir_ / "dst"));
}

// --- a far end that is not ours ---

// Of two far ends either may be somebody's who wants the other's account.
TEST(CopyDoor, AnotherFarEndGetsWhatTheCallerSaidAndNoMore) {
  const auto door = Door::Create();
  ASSERT_TRUE(door.ok());
  Task task;
  task.role = Task::Role::kReceives;
  task.names = {"dst", "asked"};
  EXPECT_TRUE((*door)->Check(task).ok()) << "of its own caller";
  const auto meet = [&](const Bytes& words) {
    transport::SessionRequest request;
    request.service = kMeetService;
    request.request = words;
    return (*door)->Admit(request).status();
  };
  EXPECT_EQ(meet(EncodeHello()).code(), Code::kProtocolError);
  EXPECT_TRUE(meet(EncodeMeet(*DigestOf(task))).ok());
  EXPECT_TRUE((*door)->Check(task).ok());
  Task other = task;
  other.names = {"~/.ssh", "asked"};
  EXPECT_EQ((*door)->Check(other).code(), Code::kProtocolError);
  // Nor may it say so itself.
  EXPECT_EQ(meet(EncodeMeet(*DigestOf(other))).code(), Code::kBusy);
  EXPECT_FALSE((*door)->Check(other).ok());
}

// ssh has started us, and its caller finds that it wants something else.
TEST(CopyDoor, ACallerThatGoesBeforeItHasASessionIsNotWaitedFor) {
  using std::chrono_literals::operator""s;
  const auto door = Door::Create();
  ASSERT_TRUE(door.ok());
  transport::AcceptorOptions options;
  options.port = 0;
  options.listen_tcp = false;
  options.keys = {{"ssh", transport::Key("sesame")}};
  const auto acceptor = transport::Acceptor::Create(options, **door);
  ASSERT_TRUE(acceptor.ok()) << acceptor.status().message();
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  Fd caller(ends[0]);
  (*acceptor)->Serve(transport::tcp::MakeSocketStream(Fd(ends[1]), "ssh"));
  std::thread accepting([&] { (void)(*acceptor)->Run(); });
  caller.Reset();
  EXPECT_EQ((*door)->Await(-1, DeadlineAfter(300s)).status().code(), Code::kDisconnected);
  (*acceptor)->Stop();
  accepting.join();
}

TEST(CopyDoor, AnInterruptEndsTheWaiting) {
  using std::chrono_literals::operator""s;
  const auto door = Door::Create();
  ASSERT_TRUE(door.ok());
  const auto interrupts = EventFd::Create();
  ASSERT_TRUE(interrupts.ok());
  interrupts->Ring();
  const Status status = (*door)->Await(interrupts->fd(), DeadlineAfter(300s)).status();
  EXPECT_EQ(status.errno_value(), EINTR) << status.message();
}

// Says Begin and then, in one batch, whatever a test likes; the receiver's end of it.
class CopyHostile : public CopyLive {
 protected:
  Status Receive(const Begin& begin, const std::function<void(BatchWriter&)>& fill,
                 const std::function<void(Bytes&)>& spoil = nullptr,
                 const std::function<void(ReceiverSettings&)>& set = nullptr) {
    Pair pair(GetParam());
    EXPECT_EQ(pair.problem(), "");
    std::thread far([&] {
      Attack(*pair.far.lane, pair.far.domain, begin, fill, spoil);
      pair.far.lane.reset();
    });
    TalkSettings told;
    told.tell = [](const Notice&) {};
    Talk talk(*pair.caller_lane, std::move(told));
    ReceiverSettings settings;
    settings.destination = dir_ / "dst";
    settings.options.keep = Keep::All();
    settings.allow = [](const Begin& got, std::uint64_t failures) {
      return CheckSources({"asked"}, got, failures);
    };
    settings.asked.recurse = true;
    settings.threads = 2;
    if (set) set(settings);
    Receiver receiver(talk, pair.caller_domain, std::move(settings));
    Status status = receiver.Run();
    pair.caller_lane.reset();
    far.join();
    return status;
  }

  static Begin Asked() {
    Begin out;
    out.sources = {{.asked = 0, .is_directory = true, .name = "asked"}};
    return out;
  }
  static Entry At(const std::string& path, Kind kind) {
    Entry entry;
    entry.path = path;
    entry.kind = kind;
    entry.mode = 0700;
    return entry;
  }

  std::vector<std::uint64_t> wanted_;
  std::optional<Tally> end_;  // said when the batch is done

 private:
  void Attack(transport::Connection& lane, const std::shared_ptr<transport::Domain>& domain,
              const Begin& begin, const std::function<void(BatchWriter&)>& fill,
              const std::function<void(Bytes&)>& spoil) {
    using std::chrono_literals::operator""s;
    if (!lane.Send(ByteSpan(begin.Encode()->front())).ok()) return;
    std::optional<Welcome> welcome;
    std::array<transport::Completion, 4> got;
    // Until it is told that the batch is done, or that this is the end.
    const auto hear = [&] {
      const auto count = lane.Wait(got, DeadlineAfter(20s));
      if (!count.ok() || *count == 0) return false;
      for (const auto& each : std::span(got).first(*count)) {
        const auto type = TypeOf(each.message);
        if (type == MessageType::kAbort || type == MessageType::kCredit) return false;
        if (type == MessageType::kWelcome) welcome = *Welcome::Decode(each.message);
        if (type == MessageType::kWant) wanted_ = Want::Decode(each.message)->numbers;
      }
      return true;
    };
    while (!welcome) {
      if (!hear()) return;
    }
    auto memory =
        SharedMemory::Create("attack", welcome->slot_bytes, SharedMemory::Peers::kMayWrite);
    auto region = domain->Register(*std::move(memory), transport::Access::kLocal);
    BatchWriter batch((*region)->bytes());
    fill(batch);
    (void)lane.Write({region->get(), 0, batch.size()}, {welcome->ring, 0});
    Bytes message =
        EncodeBatch(0, static_cast<std::uint32_t>(batch.size()), pipe::DigestOf(batch.written()));
    if (spoil) spoil(message);
    (void)lane.Send(ByteSpan(message));
    (void)lane.Flush();
    while (hear()) {
    }
    if (!end_) return;
    pipe::StreamDigest digest;
    digest.Add(0, static_cast<std::uint32_t>(batch.size()), pipe::DigestOf(batch.written()));
    end_->batches = 1;
    end_->digest = digest.Value();
    (void)lane.Send(ByteSpan(end_->Encode(MessageType::kEnd)));
    (void)lane.Flush();
    while (hear()) {
    }
  }
};

TEST_P(CopyHostile, NamesThatNobodyAskedFor) {
  Begin begin = Asked();
  begin.sources[0].name = ".ssh";
  const Status status = Receive(begin, [](BatchWriter&) {});
  EXPECT_EQ(status.code(), Code::kProtocolError) << status.message();
  EXPECT_TRUE(fs::is_empty(dir_ / "dst"));
}

// As if it were not there, and nobody would hear of it.
TEST_P(CopyHostile, ASourceThatIsLeftOutWithoutAWord) {
  for (const std::uint64_t problems : {0U, 1U}) {
    Begin begin;
    begin.problems = problems;
    const Status status = Receive(begin, [](BatchWriter&) {});
    EXPECT_EQ(status.code(), Code::kProtocolError) << status.message();
  }
}

// What our own sender would never come to, with the options that it was given.
TEST_P(CopyHostile, EntriesThatNobodyAskedFor) {
  Rules rules;
  rules.Add(false, "secret");
  using Set = std::function<void(ReceiverSettings&)>;
  const Set no_specials = [](ReceiverSettings& settings) {
    settings.options.keep.specials = false;
  };
  const Set no_recursion = [](ReceiverSettings& settings) { settings.asked.recurse = false; };
  const Set excluded = [&](ReceiverSettings& settings) { settings.asked.filter = &rules; };
  for (const auto& [entry, set] : {std::pair{At("fifo", Kind::kFifo), no_specials},
                                   {At("disk", Kind::kBlockDevice), no_specials},
                                   {At("d", Kind::kDirectory), no_recursion},
                                   {At("secret/d", Kind::kDirectory), excluded}}) {
    const auto fill = [root = At("", Kind::kDirectory), one = entry](BatchWriter& batch) {
      ASSERT_TRUE(batch.Add(root, 0, 0));
      ASSERT_TRUE(batch.Add(one, 1, 0));
    };
    const Status status = Receive(Asked(), fill, nullptr, set);
    EXPECT_EQ(status.code(), Code::kProtocolError) << entry.path << ": " << status.message();
    EXPECT_NE(status.message().find("not asked for"), std::string::npos) << status.message();
    std::error_code ignored;
    fs::remove(dir_ / "dst/asked", ignored);
    EXPECT_TRUE(fs::is_empty(dir_ / "dst")) << entry.path;
  }
}

// With --delete the end of a directory deletes what is in it and did not come.
TEST_P(CopyHostile, TheEndOfADirectoryThatNobodyAskedFor) {
  fs::create_directories(dir_ / "dst/asked/secret");
  dir_.Write("dst/asked/secret/f", "kept");
  Rules rules;
  rules.Add(false, "secret");
  const Status status = Receive(
      Asked(),
      [](BatchWriter& batch) {
        ASSERT_TRUE(batch.Add(At("", Kind::kDirectory), 0, 0));
        ASSERT_TRUE(batch.AddLeave(0, "secret"));
      },
      nullptr,
      [&](ReceiverSettings& settings) {
        settings.asked.filter = &rules;
        settings.remove = true;
      });
  EXPECT_EQ(status.code(), Code::kProtocolError) << status.message();
  EXPECT_EQ(dir_.Read("dst/asked/secret/f"), "kept");
}

TEST_P(CopyHostile, PathsThatLeadElsewhere) {
  for (const std::string path : {"../x", "/x", "a/../../x"}) {
    const Status status = Receive(Asked(), [&](BatchWriter& batch) {
      ASSERT_TRUE(batch.Add(At("", Kind::kDirectory), 0, 0));
      ASSERT_TRUE(batch.Add(At(path, Kind::kDirectory), 1, 0));
    });
    EXPECT_EQ(status.code(), Code::kProtocolError) << path << ": " << status.message();
  }
  EXPECT_FALSE(fs::exists(dir_ / "x"));
}

// A symlink, and then something through it.
TEST_P(CopyHostile, ThroughALinkOfItsOwn) {
  fs::create_directory(dir_ / "outside");
  (void)Receive(Asked(), [&](BatchWriter& batch) {
    Entry link = At("l", Kind::kSymlink);
    link.target = dir_ / "outside";
    ASSERT_TRUE(batch.Add(At("", Kind::kDirectory), 0, 0));
    ASSERT_TRUE(batch.Add(link, 1, 0));
    ASSERT_TRUE(batch.Add(At("l", Kind::kDirectory), 2, 0));
    ASSERT_TRUE(batch
                    .AddWhole(At("l/f", Kind::kFile), 3, 0,
                              [](MutableByteSpan) { return Result<std::size_t>(0); })
                    .ok());
    ASSERT_TRUE(batch.AddLeave(0, "l"));
    ASSERT_TRUE(batch.AddLeave(0, ""));
  });
  EXPECT_TRUE(fs::is_empty(dir_ / "outside"));
}

TEST_P(CopyHostile, DamagedBatchesAndWrongNumbers) {
  const auto fill = [](BatchWriter& batch) { (void)batch.Add(At("", Kind::kDirectory), 0, 0); };
  EXPECT_EQ(Receive(Asked(), fill, [](Bytes& message) { message.back() ^= std::byte{1}; }).code(),
            Code::kProtocolError)
      << "another checksum";
  EXPECT_EQ(Receive(Asked(), fill, [](Bytes& message) { message[8] = std::byte{1}; }).code(),
            Code::kProtocolError)
      << "out of turn";
  EXPECT_EQ(Receive(Asked(), fill, [](Bytes& message) { message[7] = std::byte{0x7f}; }).code(),
            Code::kProtocolError)
      << "longer than a slot";
  EXPECT_EQ(
      Receive(Asked(), fill, [](Bytes& message) { message = Tally{}.Encode(MessageType::kEnd); })
          .code(),
      Code::kProtocolError)
      << "an end that names another checksum";
  EXPECT_TRUE(fs::is_empty(dir_ / "dst"));
}

TEST_P(CopyHostile, AnAnswerThatNobodyAskedFor) {
  const Status status = Receive(Asked(), [](BatchWriter& batch) {
    ASSERT_TRUE(batch.Add(At("", Kind::kDirectory), 0, 0));
    ASSERT_TRUE(batch.Add(At("f", Kind::kFile), 1, EntryWire::kAnswer));
  });
  EXPECT_EQ(status.code(), Code::kProtocolError) << status.message();
}

// As of a directory that changes while it is read.
TEST_P(CopyHostile, AFileThatIsOfferedTwiceIsWantedOnce) {
  (void)Receive(
      Asked(),
      [](BatchWriter& batch) {
        ASSERT_TRUE(batch.Add(At("", Kind::kDirectory), 0, 0));
        ASSERT_TRUE(batch.AddOffer(At("f", Kind::kFile), 1, 0, std::nullopt));
        ASSERT_TRUE(batch.AddOffer(At("f", Kind::kFile), 2, 0, std::nullopt));
      },
      nullptr, [](ReceiverSettings& settings) { settings.policy.sync = true; });
  EXPECT_EQ(wanted_, std::vector<std::uint64_t>{1});
}

TEST_P(CopyHostile, AFileThatIsWantedAndNeverComes) {
  end_ = Tally{.entries = 2};
  const Status status = Receive(
      Asked(),
      [](BatchWriter& batch) {
        ASSERT_TRUE(batch.Add(At("", Kind::kDirectory), 0, 0));
        ASSERT_TRUE(batch.AddOffer(At("f", Kind::kFile), 1, 0, std::nullopt));
        ASSERT_TRUE(batch.AddLeave(0, ""));
      },
      nullptr, [](ReceiverSettings& settings) { settings.policy.sync = true; });
  EXPECT_NE(status.message().find("something is missing"), std::string::npos) << status.message();
}

TEST_P(CopyHostile, AFileThatNeverEnds) {
  const Status status = Receive(
      Asked(),
      [](BatchWriter& batch) {
        ASSERT_TRUE(batch.Add(At("", Kind::kDirectory), 0, 0));
        ASSERT_TRUE(batch.Add(At("f", Kind::kFile), 1, 0));
        ASSERT_EQ(batch.AddPiece(1, 0, 10).size(), 10U);
      },
      [](Bytes&) {});
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(fs::exists(dir_ / "dst/asked/f")) << "a part under its final name";
  for (const auto& left : fs::recursive_directory_iterator(dir_ / "dst")) {
    EXPECT_TRUE(left.is_directory()) << left.path();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CopyLive, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);
INSTANTIATE_TEST_SUITE_P(Kinds, CopyHostile, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::copy
