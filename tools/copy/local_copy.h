// LocalCopy: the form of rdcp that needs no other rdcp, from directories of this machine and of
// exports to one of either. What is on an export is reached as a file here is (file/file.h).
//
//     scanner (the caller's thread) --> queue --> crew: opens, copies, renames
//                    |
//                    +-- directories are made at once, before what is in them is queued
//
// Used once, by one thread. Failures of single files go to the report, and the rest goes on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "tools/copy/destination/decide.h"
#include "tools/copy/destination/destination.h"
#include "tools/copy/file/pace.h"
#include "tools/copy/report/report.h"
#include "tools/copy/source/scanner.h"

namespace rdfs::copy {

struct Source {
  std::string shown;  // as the user named it
  std::string path;   // from `from` on
  FilePtr from = Here();
};

struct LocalOptions {
  ScanOptions scan{};
  Keep keep{};
  Policy policy{};
  bool remove = false;   // --delete
  bool verify = false;   // --verify
  bool dry_run = false;  // -n
  // A SRC is begun when all before it is finished: of two files of one name the later one stays.
  bool in_turn = false;
  int threads = 2;
  std::uint64_t limit = 0;  // --bwlimit, bytes a second
  std::string root{};       // of the destination, for what is said
};

class LocalCopy {
 public:
  // All of them outlive it. `destination` has the targets, and knows the sources' ids.
  LocalCopy(LocalOptions options, std::vector<Source> sources, Destination& destination,
            Report& report, const std::atomic<bool>& stop);
  // The crew ends.
  ~LocalCopy();
  LocalCopy(const LocalCopy&) = delete;
  LocalCopy& operator=(const LocalCopy&) = delete;

  // Copies SRC number `source`; returns when all of it was handed to the crew, with `in_turn` when
  // it was copied.
  void Add(std::uint32_t source);
  // Waits for the crew.
  void Finish();

 private:
  // What was seen of a directory that is being walked, for --delete.
  struct Seen {
    std::unordered_set<std::string> names;
    bool whole = true;    // the list could be read to its end
    bool unread = false;  // and was not meant to
  };

  void Work();
  struct Item {
    Scanned scanned;
    Destination::Pin pin;
  };
  void Queue(Item item);
  void Do(Item& item);
  void AwaitIdle();
  void Take(Scanned& scanned, Scanner& scanner);
  void Enter(Scanned& scanned, Scanner& scanner);
  void Leave(const Entry& entry);
  void Note(const Scanned& scanned);
  void Prune(const Entry& entry, const Seen& seen);
  void DryRun(Scanned& scanned);
  // All: whether it was copied.
  bool CopyOne(Scanned& scanned);
  bool CopyFile(Scanned& scanned, Verdict verdict);
  bool MakeOther(Scanned& scanned, Verdict verdict);
  Status CopyData(Entry& entry, File& source);
  Status Verify(const Entry& entry, File& source, OutputFile& out);
  Result<Verdict> Judge(const Entry& entry);
  Result<bool> HasContentOf(const Entry& entry, File& source);
  void Problem(const Entry& entry, const Status& status);
  [[nodiscard]] std::string Shown(const Entry& entry) const;

  const LocalOptions options_;
  const std::vector<Source> sources_;
  Destination& destination_;
  Report& report_;
  const std::atomic<bool>& stop_;
  std::vector<Seen> seen_;
  Pace pace_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable more_, room_, idle_;
  std::deque<Item> queue_;
  int busy_ = 0;  // of the crew
  bool ended_ = false;
  std::vector<std::thread> crew_;
};

// Counts what Add would copy, as far as it gets before `stop`: for progress.
void CountTree(const Source& source, const ScanOptions& options, const std::atomic<bool>& stop,
               std::atomic<std::uint64_t>& files, std::atomic<std::uint64_t>& bytes);

}  // namespace rdfs::copy
