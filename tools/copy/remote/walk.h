// Walk: what the sender puts into its batches, decided in the order of the tree: directories before
// what is in them, small files whole, large ones as an entry, pieces and an end.
//
//   scanner --> Classify --> items of a batch, until it is full
//   a large file --> its entry; then batches of its pieces; then its end, when all were read
//
// Next by one thread at a time; PieceRead by any. Blocks in the file system. Numbers what it hands
// out, so that the order of batches is the order of the tree.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <variant>
#include <vector>

#include "tools/copy/remote/records.h"
#include "tools/copy/remote/wire.h"
#include "tools/copy/report/counter.h"
#include "tools/copy/source/filter.h"
#include "tools/copy/source/scanner.h"
#include "tools/pipe/io/stopping.h"

namespace rdfs::copy {

// A file that is sent in pieces.
struct LargeFile {
  std::uint64_t number = 0;
  std::string path;        // for messages
  std::uint64_t size = 0;  // `unsized`: what has been read so far
  bool unsized = false;    // it says that it is empty, and is not: as those of /proc
  FilePtr file;
  std::uint64_t next = 0;                 // where the next piece is looked for
  std::uint64_t data_end = 0;             // there are no holes between there and here
  std::vector<Range> there;               // at the receiver, and not sent
  std::atomic<std::uint64_t> brought{0};  // bytes of its pieces
  std::atomic<bool> failed{false};
  std::size_t reading = 0;  // pieces; under Walk::files_mutex_
  bool handed_out = false;  // all of them; likewise
};

struct WalkItem {
  enum class What : std::uint8_t { kEntry, kWhole, kOffer, kLeave, kFileEnd };
  What what = What::kEntry;
  std::uint64_t number = 0;
  std::uint16_t flags = 0;           // EntryWire's, but kWhole
  bool partial = false;              // kLeave
  Scanned scanned;                   // but for kFileEnd
  FileEndRecord end{};               // kFileEnd
  std::shared_ptr<LargeFile> large;  // kEntry: its pieces come next
};
struct WalkPiece {
  std::shared_ptr<LargeFile> file;
  std::uint64_t offset = 0, length = 0;
  std::vector<std::byte> bytes;  // of an `unsized` file, which the walk reads itself, in order
};
// What one batch is to hold: items, or pieces.
struct WalkTask {
  std::vector<WalkItem> items;
  std::vector<WalkPiece> pieces;
};

// Told of a directory from which something was left out that cannot be had: nothing is deleted in
// it.
using Unsent = std::function<void(const std::string& path)>;

// How many directories may be held open at a time by what is handed out and offered: a part of what
// the limit of open files allows.
std::size_t FoldersAtOnce();

struct WalkOptions {
  ScanOptions scan;
  Keep keep;
  std::vector<std::string> paths;  // Entry::source counts these
  bool holes = true;  // are left out; else they are sent as zeros, for a file written in place
  // Files are offered first, and their data come only if they are wanted.
  bool offers = false;
  // See Turns. Of each is handed out what there is, and then waits() is true. Empty: all in one.
  std::vector<std::size_t> turns;
  std::uint64_t limit = 0;  // bytes a second
  bool digests = false;     // of their content go with the offers
  bool resume = false;      // with `offers`: what the receiver has of a file is not sent
  std::uint32_t slot_bytes = 0;
  std::size_t folders = FoldersAtOnce();
  Copied copied;                 // may be empty
  Unsent unsent;                 // with --delete; may be empty
  const Listed* list = nullptr;  // that `scan` has as its filter: what is missing is told
};

// Counts what a walk would find: of a thread beside it.
Counter::Count CountOf(const WalkOptions& options);

class Walk {
 public:
  using Tell = std::function<void(Notice)>;
  // `tell` is called in Next and PieceRead, with what concerns one file.
  Walk(WalkOptions options, Tell tell)
      : options_(std::move(options)),
        tell_(std::move(tell)),
        begun_(options_.turns.empty() ? options_.paths.size() : options_.turns.front()) {}
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // What the next batch holds; nullopt when there is nothing left, or after Stop. May wait for
  // PieceRead of pieces that were handed out.
  std::optional<WalkTask> Next();
  // Nothing is left of the sources that were begun, and the next turn waits for BeginNext. Both, as
  // Next, by one thread at a time.
  [[nodiscard]] bool waits() const { return begun_ < options_.paths.size(); }
  void BeginNext() { begun_ = options_.turns[++turn_]; }
  // The piece is in its batch, or could not be read.
  void PieceRead(const WalkPiece& piece, const Status& status);
  // What the receiver answers to offers. Any thread. Errors: kProtocolError.
  Status Answered(const Want& want);
  Status Has(Have have);
  void Stop();

  // The file of a kWhole item, and what of it is as it is now; never longer than planned. Any
  // thread.
  Result<FilePtr> Open(Scanned& scanned) const;

  // It is in a batch, with these flags of EntryWire. Whether a link, or what goes without an offer,
  // was there already only the receiver knows.
  void Packed(const Entry& entry, std::uint16_t flags) const {
    const bool sure = options_.offers ? (flags & EntryWire::kAnswer) != 0 : flags == 0;
    if (!sure) Pass(entry);
    if (options_.copied && sure) options_.copied(entry, Named(entry));
  }
  // What was counted of it is done without being sent: see Report::Passed. Any thread.
  void Pass(const Entry& entry) const {
    if (entry.kind == Kind::kDirectory) return;
    ++passed_files_;
    passed_bytes_ += entry.size;
  }
  [[nodiscard]] Totals passed() const { return {passed_files_, passed_bytes_}; }
  [[nodiscard]] std::uint64_t kept() const { return kept_; }
  [[nodiscard]] bool digests() const { return options_.digests; }
  [[nodiscard]] std::string Named(const Entry& entry) const;
  void TellOf(const Entry& entry, const Status& why);

 private:
  bool TakePieces(WalkTask& task);
  void EndFile(const LargeFile& file);
  bool FindData(LargeFile& file, std::uint64_t& offset);
  void CheckLength(LargeFile& file);
  bool NextPiece(LargeFile& file, WalkPiece& out);
  bool ReadPiece(LargeFile& file, WalkPiece& out);
  bool TakeItems(WalkTask& task);
  void TakeEnds(WalkTask& task, std::size_t& room);
  bool AwaitNews(bool scanned_all);
  bool HoldsManyFolders();
  bool MayScan(bool holds_many, bool is_empty) const;
  std::optional<WalkItem> TakeWanted();
  std::optional<WalkItem> ScanOne(bool& end);
  bool Scan(Scanned& out);
  void TellMissing();
  std::optional<WalkItem> Classify(Scanned scanned);
  bool Number(WalkItem& item);
  std::optional<WalkItem> LeaveOut(const Entry* counted);
  bool ClassifyFile(WalkItem& item);
  bool ReadRestOf(Scanned& scanned);
  [[nodiscard]] std::size_t RoomFor(const WalkItem& item) const;

  const WalkOptions options_;
  const Tell tell_;
  std::atomic<std::uint64_t> kept_{0};
  mutable std::atomic<std::uint64_t> passed_files_{0}, passed_bytes_{0};
  std::size_t source_ = 0;  // the next one
  std::size_t turn_ = 0;
  std::size_t begun_;  // those before this one may be walked
  std::unique_ptr<Scanner> scanner_;
  bool missing_told_ = false;
  std::optional<WalkItem> held_;  // did not fit into the last batch
  // Those of what was handed out, as far as somebody still has them open.
  std::set<std::weak_ptr<File>, std::owner_less<>> folders_;
  std::uint64_t next_number_ = 0;
  std::unordered_set<FileId> seen_;  // files of several names that were handed out
  std::shared_ptr<LargeFile> file_;  // whose pieces are handed out
  enum class Sent : std::uint8_t { kAll, kUnread, kPart };
  std::vector<Sent> sent_;  // of the directories that are open

  std::mutex files_mutex_;
  std::condition_variable news_;
  std::size_t open_files_ = 0;      // under files_mutex_, as what follows
  std::deque<FileEndRecord> ends_;  // of files whose pieces are all read
  struct Offered {
    Scanned scanned;
    std::vector<Range> there;
  };
  std::map<std::uint64_t, Offered> offers_;  // that are not answered
  std::deque<Offered> wanted_;
  pipe::StopFlag stopped_{false};  // set under files_mutex_
};

}  // namespace rdfs::copy
