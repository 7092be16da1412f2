// Seeded schedules in virtual time: a client that holds grants for as long as it likes and READs
// them late must never take bytes for the file's that were not the file's.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tests/server/pool/store_fixture.h"

namespace rdfs::server {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPages = 500;  // of each file; together more than the pool
constexpr std::size_t kFiles = 4;
constexpr milliseconds kAttrLease{1000};

// Each page of a file is filled with its name: file, page and version.
struct PageWord {
  std::uint64_t file, page, version;
};

class Schedule {
 public:
  Schedule(std::uint32_t seed, bool obeys_leases, bool foreign_changes)
      : random_(seed), obeys_leases_(obeys_leases), foreign_(foreign_changes) {
    for (std::uint64_t i = 0; i < kFiles; ++i) {
      files_.push_back(std::make_unique<TestFile>(directory_ / std::to_string(i)));
      born_.emplace_back(kPages);
      for (std::uint64_t page = 0; page < kPages; ++page) WritePage(i, page);
    }
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      ++step_;
      switch (Pick(10)) {
        case 0:
        case 1:
          Ask();
          break;
        case 2:
          if (Pick(3) == 0) Change(false);
          break;
        case 3:
          if (foreign_ && Pick(4) == 0) Change(true);
          break;
        case 4:
          clock_.Advance(milliseconds(Pick(Pick(10) == 0 ? 2000 : 100)));
          break;
        case 5:
          while (io_->RunDeferred()) {
          }
          break;
        case 6:
        case 7:
          StartRead();
          break;
        default:
          FinishRead();
      }
    }
  }

  [[nodiscard]] int accepted() const { return accepted_; }
  [[nodiscard]] int discarded() const { return discarded_; }
  [[nodiscard]] int wrong() const { return wrong_; }
  ExtentStore& store() { return store_; }

 private:
  struct Held {
    std::uint64_t file;
    fs::GrantWire grant;
    TimePoint asked;
  };
  struct InFlight {
    Held held;
    Bytes bytes;
    std::uint64_t step;  // when the READ began
    TimePoint time;
  };
  // When each version of a page came to be: version n at steps[n].
  struct History {
    std::vector<std::uint64_t> steps;
    std::vector<TimePoint> times;
    std::vector<bool> foreign;
  };

  std::uint64_t Pick(std::uint64_t below) { return random_() % below; }

  void WritePage(std::uint64_t file, std::uint64_t page, bool foreign = false) {
    History& history = born_[file][page];
    const PageWord word{file, page, history.steps.size()};
    std::vector<PageWord> words(kPage / sizeof(PageWord), word);
    Bytes bytes(kPage);
    std::memcpy(bytes.data(), words.data(), words.size() * sizeof(PageWord));
    files_[file]->WriteAt(page * kPage, bytes);
    history.steps.push_back(step_);
    history.times.push_back(clock_.Now());
    history.foreign.push_back(foreign);
  }

  void Ask() {
    const std::uint64_t file = Pick(kFiles);
    const TimePoint asked = clock_.Now();
    const std::uint64_t length = Pick(2) == 0 ? kPage : Pick(60) * kPage + 1;
    const GotRead got = ReadNow(store_, *io_,
                                {.file = files_[file]->id(),
                                 .fd = files_[file]->fd(),
                                 .offset = Pick(kPages) * kPage,
                                 .length = static_cast<std::uint32_t>(length),
                                 .want_ahead = static_cast<std::uint32_t>(Pick(2) * (1 << 20)),
                                 .session = Pick(3),
                                 .lane = client_.lane()});
    ASSERT_EQ(got.error, 0);
    for (const fs::GrantWire& grant : got.grants) held_.push_back({file, grant, asked});
    while (held_.size() > 200) held_.pop_front();
  }

  void Change(bool behind_the_back) {
    const std::uint64_t file = Pick(kFiles);
    const std::uint64_t page = Pick(kPages);
    WritePage(file, page, behind_the_back);
    if (behind_the_back) return;
    const FileVersion after = files_[file]->Stat();
    store_.Changed(files_[file]->id(), page * kPage, kPage, Pick(2) == 0 ? &after : nullptr);
  }

  void StartRead() {
    if (held_.empty()) return;
    // Mostly a grant of late, sometimes one of long ago.
    const std::size_t recent = std::min<std::size_t>(held_.size(), Pick(4) == 0 ? 200 : 8);
    const Held held = held_[held_.size() - 1 - Pick(recent)];
    flying_.push_back({held, client_.ReadBytes(held.grant), step_, clock_.Now()});
  }

  void FinishRead() {
    if (flying_.empty()) return;
    const InFlight read = std::move(flying_.front());
    flying_.pop_front();
    const bool holds = client_.Holds(read.held.grant);
    const milliseconds lease(std::uint32_t{read.held.grant.lease_ms});
    // The client's drift: its clock may run 1 % slow.
    const bool in_time = clock_.Now() < read.held.asked + lease + lease / 100;
    if (!holds || (obeys_leases_ && !in_time)) {
      ++discarded_;
      return;
    }
    ++accepted_;
    Check(read);
  }

  // Every page must be one that the file had between the READ's begin and now; one changed behind
  // the server's back may be as old as the attr lease and the grant's own.
  void Check(const InFlight& read) {
    const std::uint64_t first = read.held.grant.file_offset / kPage;
    for (std::uint64_t i = 0; i < read.bytes.size() / kPage; ++i) {
      PageWord word{};
      std::memcpy(&word, read.bytes.data() + i * kPage, sizeof(word));
      const History& history = born_[read.held.file][first + i];
      const bool right_place = word.file == read.held.file && word.page == first + i &&
                               word.version < history.steps.size();
      if (!right_place || !WasThere(history, word.version, read)) ++wrong_;
    }
  }
  static bool WasThere(const History& history, std::uint64_t version, const InFlight& read) {
    const std::uint64_t next = version + 1;
    if (next >= history.steps.size()) return true;
    if (history.steps[next] > read.step) return true;
    if (!history.foreign[next]) return false;
    return history.times[next] + kAttrLease >= read.held.asked;
  }

  std::mt19937 random_;
  const bool obeys_leases_;
  const bool foreign_;
  TempDir directory_;
  std::vector<std::unique_ptr<TestFile>> files_;
  std::vector<std::vector<History>> born_;
  ManualClock clock_;
  std::shared_ptr<transport::Domain> domain_ = transport::Domain::Create("schedule");
  LaneClient client_{domain_};
  ExtentStore store_{
      domain_,
      {.pool = {.pool_bytes = 6 << 20, .arena_bytes = 2 << 20, .first_arena_bytes = 0},
       .attr_lease = kAttrLease},
      clock_};
  std::unique_ptr<FileIo> io_ = MakeFileIo();
  std::uint64_t step_ = 1;
  std::deque<Held> held_;
  std::deque<InFlight> flying_;
  int accepted_ = 0, discarded_ = 0, wrong_ = 0;
};

TEST(ExtentSchedule, AClientNeverTakesOtherBytesForItsOwn) {
  int accepted = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    Schedule schedule(seed, true, seed % 2 == 0);
    schedule.Run(3000);
    EXPECT_EQ(schedule.wrong(), 0) << "seed " << seed;
    accepted += schedule.accepted();
  }
  EXPECT_GT(accepted, 1000);
}

// A client that was stopped for long and whose clock stands still has the generation words alone.
TEST(ExtentSchedule, AFrozenClientDoesNotEither) {
  int accepted = 0;
  int discarded = 0;
  for (std::uint32_t seed = 100; seed < 120; ++seed) {
    Schedule schedule(seed, false, false);
    schedule.Run(3000);
    EXPECT_EQ(schedule.wrong(), 0) << "seed " << seed;
    accepted += schedule.accepted();
    discarded += schedule.discarded();
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(discarded, 1000) << "the schedule revoked too little to show anything";
}

TEST(ExtentSchedule, ItWouldBeSeenIfGenerationsWereNotBumped) {
  Schedule schedule(7, false, false);
  schedule.store().BreakGenerationsForTest();
  schedule.Run(3000);
  EXPECT_GT(schedule.wrong(), 0);
}

}  // namespace
}  // namespace rdfs::server
