#include "tests/e2e/acknowledged/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/e2e/acknowledged/journal.h"
#include "tests/e2e/acknowledged/model.h"

namespace rdfs::acknowledged {
namespace {

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// What all threads tried for under one number: who had it, who may have, who was told that it is
// gone.
struct Race {
  std::vector<int> winners;
  std::vector<int> maybe;
  std::size_t losers = 0;

  void Note(int thread, Verdict verdict, int error) {
    if (verdict == Verdict::kUnsure) {
      maybe.push_back(thread);
    } else {
      error == 0 ? winners.push_back(thread) : void(++losers);
    }
  }
  // Whether it has been had: no answer, if that is open.
  [[nodiscard]] std::optional<bool> Had() const {
    if (!winners.empty()) return true;
    if (maybe.empty()) return false;
    return std::nullopt;
  }
};

class Checker {
 public:
  Checker(std::string root, const std::vector<int>& unsure)
      : root_(std::move(root)), unsure_(unsure) {}

  void Thread(const std::string& journals, int thread) {
    Model model(thread);
    for (const Entry& entry : ReadJournal(JournalPath(journals, thread))) {
      const Op& op = entry.op;
      const Verdict verdict =
          entry.error ? Judge(model, op, *entry.error, unsure_) : Verdict::kUnsure;
      if (verdict == Verdict::kWrong) {
        Say(fmt::format("thread {}, call {}: errno {} is no answer to that", thread, op.ToText(),
                        *entry.error));
        return;
      }
      Note(thread, op, verdict, entry.error.value_or(EIO));
      verdict == Verdict::kDone ? model.Done(op) : model.Unsure(op, entry.error.value_or(0));
    }
    for (std::string& line : Differences(model, root_ + "/" + ThreadDirectory(thread))) {
      Say(std::move(line));
    }
  }

  void SharedNames(int most) {
    for (int k = 0; k < most; ++k) {
      if (claims_.contains(k)) Claim(k, claims_[k]);
      Take(k, takes_[k]);
      Grab(k, grabs_[k]);
    }
  }

  void SharedLog(int threads) {
    std::ifstream in(root_ + "/" + kLogName, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (all.size() % kRecordBytes != 0) Say("the shared log ends in the middle of a record");
    std::map<std::string, int> found;
    std::vector<std::uint64_t> last(static_cast<std::size_t>(threads), 0);
    for (std::size_t at = 0; at + kRecordBytes <= all.size(); at += kRecordBytes) {
      const std::string record = all.substr(at, kRecordBytes);
      const auto asked = records_.find(record);
      if (asked == records_.end()) {
        Say(fmt::format("the shared log has at {} what nobody wrote", at));
        continue;
      }
      if (++found[record] > 1) Say(fmt::format("appended twice: {}", record.substr(0, 24)));
      if (!asked->second.sure) continue;
      std::uint64_t& before = last[static_cast<std::size_t>(asked->second.thread)];
      if (asked->second.number < before) Say(fmt::format("out of order: {}", record.substr(0, 24)));
      before = asked->second.number;
    }
    for (const auto& [record, asked] : records_) {
      if (asked.sure && !found.contains(record)) {
        Say(fmt::format("a record is lost: {}", record.substr(0, 24)));
      }
    }
  }

  [[nodiscard]] std::vector<std::string> Take() { return std::move(out_); }

 private:
  struct Asked {
    int thread = 0;
    std::uint64_t number = 0;
    bool sure = false;
  };

  void Note(int thread, const Op& op, Verdict verdict, int error) {
    if (op.kind == Kind::kLog) {
      records_[Record(thread, op.number)] = {
          .thread = thread, .number = op.number, .sure = verdict == Verdict::kDone};
    }
    if (op.kind == Kind::kClaim) claims_[op.file].Note(thread, verdict, error);
    if (op.kind == Kind::kTake) takes_[op.file].Note(thread, verdict, error);
    if (op.kind == Kind::kGrab) grabs_[op.file].Note(thread, verdict, error);
  }
  void Say(std::string line) { out_.push_back(std::move(line)); }
  void Once(const std::string& what, const Race& race) {
    if (race.winners.size() > 1) {
      Say(fmt::format("{}: {} threads were told that they did it", what, race.winners.size()));
    }
    if (race.losers > 0 && race.Had() == false) {
      Say(fmt::format("{}: somebody was told that it is done, and nobody did it", what));
    }
  }
  void Claim(int k, const Race& race) {
    Once(ClaimName(k), race);
    const bool there = Exists(root_ + "/" + ClaimName(k));
    if (race.Had() && there != *race.Had()) {
      Say(fmt::format("{}: {}", ClaimName(k), there ? "nobody made it" : "is lost"));
    }
  }
  void Take(int k, const Race& race) {
    Once(FreeName(k), race);
    const bool free = Exists(root_ + "/" + FreeName(k));
    if (race.Had() && free == *race.Had()) {
      Say(fmt::format("{}: {}", FreeName(k), free ? "is there after its rename" : "is lost"));
    }
    for (const int winner : race.winners) {
      if (!Exists(root_ + "/" + TakenName(k, winner))) {
        Say(fmt::format("{}: is lost", TakenName(k, winner)));
      }
    }
  }
  void Grab(int k, const Race& race) {
    Once(GiftName(k), race);
    const bool there = Exists(root_ + "/" + GiftName(k));
    if (race.Had() && there == *race.Had()) {
      Say(fmt::format("{}: {}", GiftName(k), there ? "is there after its unlink" : "is lost"));
    }
  }

  const std::string root_;
  const std::vector<int>& unsure_;
  std::map<int, Race> claims_, takes_, grabs_;
  std::map<std::string, Asked> records_;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> Check(const std::string& journals, const std::string& root, int shared,
                               const std::vector<int>& unsure) {
  Checker checker(root, unsure);
  int threads = 0;
  for (; Exists(JournalPath(journals, threads)); ++threads) checker.Thread(journals, threads);
  checker.SharedNames(shared);
  checker.SharedLog(threads);
  std::vector<std::string> out = checker.Take();
  if (threads == 0) out.push_back(journals + ": no journal");
  return out;
}

}  // namespace rdfs::acknowledged
