// What two rdcp say to each other over one lane of a session with the service "copy". PROTOCOL.md
// draws it; tests/tools/copy/remote/wire_test.cc holds the bytes. What is copied travels in batches
// of records (records.h).
//
// The hello is the session's opening request; everything else are messages of the lane, told apart
// by their first byte. All integers little-endian, nothing padded. A peer is hostile: decoding
// checks every length and leaves its output alone on failure. Values and pure functions; any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copy/destination/journal.h"
#include "tools/copy/file/entry.h"
#include "tools/copy/report/report.h"
#include "tools/pipe/wire/digest.h"
#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/transport.h"

namespace rdfs::copy {

inline constexpr std::string_view kServiceName = "copy";
// Of a caller that sends another far end here: it says what that one may ask for (EncodeMeet), and
// is granted the port where that one reaches us.
inline constexpr std::string_view kMeetService = "meet";
inline constexpr std::string_view kBootstrapMagic = "RDCP1";
// Peers of one major version understand each other.
inline constexpr std::uint16_t kMajor = 1;
inline constexpr std::uint16_t kMinor = 0;

using pipe::Digest;
using Bytes = std::vector<std::byte>;
using Le8 = Le<std::uint8_t>;

// The ring is bounded so that a peer cannot make us allocate. The smallest slot holds any entry
// with a path and a target of ordinary length.
inline constexpr std::uint32_t kMinSlotBytes = 64 << 10;
inline constexpr std::uint32_t kMaxSlotBytes = 16 << 20;
inline constexpr std::uint32_t kMaxSlots = 64;
inline constexpr std::size_t kMaxPathInMessage = 4096;  // PATH_MAX: what a user can name
inline constexpr std::size_t kMaxTaskBytes = 4 << 20;
inline constexpr std::uint32_t kMaxTaskNames = 1 << 20;
inline constexpr std::size_t kMaxSentence = 512;
// That carry batches beside the first lane.
inline constexpr int kMostFurtherLanes = 7;

enum class MessageType : std::uint8_t {  // never reused
  kTask = 1,
  kNames = 2,
  kBegin = 3,
  kWelcome = 4,
  kBatch = 5,
  kCredit = 6,
  kNotice = 7,
  kEnd = 8,
  kDone = 9,
  kAbort = 10,
  kPing = 11,
  kFarewell = 12,
  kWant = 13,
  kMet = 14,
  kHave = 15,
  kReady = 16,
  kMoved = 17,
  kTotals = 18,
  kGo = 19,
  kProgress = 20,
};
// The first byte; nullopt for an empty message or an unknown type.
std::optional<MessageType> TypeOf(ByteSpan message);

struct HelloWire {
  std::array<char, 4> magic;  // "RDCP"
  Le16 major, minor;
  Le32 flags;
  Le32 zero;
};
static_assert(sizeof(HelloWire) == 16 && alignof(HelloWire) == 1);
// The caller's opening words. 1.0 has no flags, and refuses those of others.
Bytes EncodeHello();
// Errors: kVersionMismatch, kUnsupported, kProtocolError.
Status CheckHello(ByteSpan bytes);

// The grant of kMeetService. Zero: nobody listens.
Bytes EncodePort(std::uint16_t port);
Result<std::uint16_t> DecodePort(ByteSpan grant);

// What the far end is to do.
struct Task {
  enum class Role : std::uint8_t { kSends = 1, kReceives = 2, kForwards = 3, kFetches = 4 };
  Role role = Role::kSends;
  bool recurse = false, follow = false, follow_source = false, one_file_system = false;
  bool in_place = false, directory_wanted = false;
  bool update = false, sync = false, remove = false, checksum = false;
  bool verify = false, dry_run = false, resume = false;
  bool has_list = false;  // only what is in `listed`
  bool moves = false;     // a better lane may come
  // The one that sends tells how much there is to do, once it knows, and one that does not send to
  // its caller how much of it is done: Totals, Progress.
  bool counts = false;
  bool asks = false;        // across: the caller is told what will be sent, and says Go
  int further_lanes = 0;    // that may come to carry batches, at most
  std::uint64_t limit = 0;  // of the one that sends, bytes a second; zero: none
  Keep keep;
  // Sources; DST, and of another far end what it may send; DST and then sources (twice).
  std::vector<std::string> names;
  // Patterns, each behind a '+' (include) or '-' (exclude).
  std::vector<std::string> rules;
  std::vector<std::string> listed;  // paths from SRC on; see Listed
};
struct TaskWire {
  Le8 type, role, further_lanes, zero;
  Le32 options, keep, names, rules, listed;
  Le64 limit;
};
static_assert(sizeof(TaskWire) == 32 && alignof(TaskWire) == 1);
// As many messages as it takes. Errors: kInvalidArgument for what no task can hold.
Result<std::vector<Bytes>> EncodeTask(const Task& task);
// BLAKE2b-256 of those messages. Errors: the same.
using TaskDigest = std::array<std::byte, 32>;
Result<TaskDigest> DigestOf(const Task& task);

// What one far end is to do that another one reaches, whose task this is: kForwards or kFetches.
Task TaskOfOther(const Task& task);
// The request of kMeetService: the hello, and the only task that the one that waits may then do,
// whoever gives it to it.
Bytes EncodeMeet(const TaskDigest& only);
Result<TaskDigest> DecodeMeet(ByteSpan request);
// Puts a task together from its messages.
class TaskReader {
 public:
  // True once it is complete. Errors: kProtocolError, kUnsupported.
  Result<bool> Take(ByteSpan message);
  Task& task() { return task_; }

 private:
  Status TakeHead(ByteSpan message);
  Status TakeNames(ByteSpan message);
  Task task_;
  bool begun_ = false;
  std::uint32_t names_ = 0, rules_ = 0, listed_ = 0;  // that are to come, all in all
  std::size_t bytes_ = 0;
};

// What the sender has found of what was asked for.
struct Begin {
  struct Source {
    std::uint32_t asked = 0;  // which name of the task; as many as a pattern there matched
    bool is_directory = false;
    std::string name;  // as it is to be called; empty: its content goes into DST itself
  };
  // The machine that the files are on, as its kernel calls this run of itself; zero if unknown.
  std::array<std::byte, 16> boot{};
  std::vector<Source> sources;  // Entry::source counts these
  std::uint64_t problems = 0;   // names of the task that led to nothing

  // As many messages as it takes. Errors: kInvalidArgument when there are too many for a copy.
  [[nodiscard]] Result<std::vector<Bytes>> Encode() const;
};
struct BeginWire {
  Le8 type;
  std::array<Le8, 3> zero;
  Le32 count;
  Le64 problems;
  std::array<std::byte, 16> boot;
};
static_assert(sizeof(BeginWire) == 32 && alignof(BeginWire) == 1);
// Puts a Begin together from its messages.
class BeginReader {
 public:
  // True once it is complete. Errors: kProtocolError.
  Result<bool> Take(ByteSpan message);
  [[nodiscard]] const Begin& begin() const { return begin_; }

 private:
  Status TakeSource(ByteReader& reader);
  Begin begin_;
  std::optional<BeginWire> head_;  // which all of them have
  std::size_t bytes_ = 0;
};

struct Welcome {
  transport::RemoteRegion ring;
  std::uint32_t slot_bytes = 0, slots = 0;

  [[nodiscard]] Bytes Encode() const;
  static Result<Welcome> Decode(ByteSpan message);
};
struct WelcomeWire {
  Le8 type;
  std::array<Le8, 3> zero;
  Le32 slot_bytes, slots, zero2;
  transport::RemoteRegionWire ring;
};
static_assert(sizeof(WelcomeWire) == 40 && alignof(WelcomeWire) == 1);

struct BatchWire {
  Le8 type;
  std::array<Le8, 3> zero;
  Le32 length;
  Le64 number;
  Digest digest;
};
static_assert(sizeof(BatchWire) == 32 && alignof(BatchWire) == 1);
Bytes EncodeBatch(std::uint64_t number, std::uint32_t length, const Digest& digest);
Result<BatchWire> DecodeBatch(ByteSpan message, std::uint32_t slot_bytes);

// For progress, from a sender that `counts`.
Bytes EncodeTotals(const Totals& totals);
Result<Totals> DecodeTotals(ByteSpan message);
struct TotalsWire {
  Le8 type;
  std::array<Le8, 7> zero;
  Le64 files, bytes;
};
static_assert(sizeof(TotalsWire) == 24 && alignof(TotalsWire) == 1);

// How far a copy is that the caller does not carry out itself: now and then, if the task `counts`.
struct Progress {
  Totals copied;
  Totals passed;  // needed no copying; see Report::Passed

  [[nodiscard]] Bytes Encode() const;
  static Result<Progress> Decode(ByteSpan message);
};
struct ProgressWire {
  Le8 type;
  std::array<Le8, 7> zero;
  Le64 files, bytes, passed_files, passed_bytes;
};
static_assert(sizeof(ProgressWire) == 40 && alignof(ProgressWire) == 1);

struct CreditWire {
  Le8 type;
  std::array<Le8, 7> zero;
  Le64 done;
};
static_assert(sizeof(CreditWire) == 16 && alignof(CreditWire) == 1);
Bytes EncodeCredit(std::uint64_t done);
Result<std::uint64_t> DecodeCredit(ByteSpan message);

// Which files of those that were offered the receiver wants: all offers of numbers below `up_to`
// are answered, and those that are not in `numbers` are there already.
struct Want {
  std::uint64_t up_to = 0;
  std::vector<std::uint64_t> numbers;

  [[nodiscard]] Bytes Encode() const;
  static Result<Want> Decode(ByteSpan message);
};

// Of a file that was offered, what an interrupted copy has brought already. Comes before the Want
// that answers the offer.
struct Have {
  // Of more only the first are told, and the rest is sent again.
  static constexpr std::size_t kMostRanges = 4096;
  std::uint64_t number = 0;
  std::vector<Range> ranges;  // in order, never over each other, never empty

  [[nodiscard]] Bytes Encode() const;
  static Result<Have> Decode(ByteSpan message);
};

// Something that happened to one file, at one of the ends, for the person at the caller; or, in a
// dry run, that would.
struct Notice {
  // kWould: be copied; `sentence`: what else would be done to it. kGone: be deleted.
  enum class What : std::uint8_t { kFailed = 1, kVanished = 2, kWould = 3, kGone = 4 };
  What what = What::kFailed;
  std::string path;  // bytes
  std::string sentence;

  // It is not where it should be.
  [[nodiscard]] bool bad() const { return what == What::kFailed || what == What::kVanished; }

  // Cuts what is too long.
  [[nodiscard]] Bytes Encode() const;
  static Result<Notice> Decode(ByteSpan message);
};

// Told at the caller's end of each entry that has been copied, with its path for messages. Any
// thread.
using Copied = std::function<void(const Entry&, const std::string& path)>;

// kEnd and kDone. Of what was made, unlike of what was sent, `entries` has no directories.
struct Tally {
  std::uint64_t batches = 0, entries = 0, bytes = 0, failed = 0;
  Digest digest{};

  [[nodiscard]] Bytes Encode(MessageType type) const;
  static Result<Tally> Decode(ByteSpan message);
};
struct TallyWire {
  Le8 type;
  std::array<Le8, 7> zero;
  Le64 batches, entries, bytes, failed;
  Digest digest;
};
static_assert(sizeof(TallyWire) == 56 && alignof(TallyWire) == 1);

// The far end has reached the other one that it was told of, over what `how` names.
Bytes EncodeMet(std::string_view how);
// `how`, made safe for a terminal.
Result<std::string> DecodeMet(ByteSpan message);

// Why a message that makes no sense now ends the connection.
Status OutOfTurn();
// One of our numbered codes and a sentence; never a host's errno.
Bytes EncodeAbort(const Status& why);
// What the peer says went wrong, made safe for a terminal; kProtocolError for a malformed one.
Status DecodeAbort(ByteSpan message);
Bytes EncodeBare(MessageType type);  // kPing, kFarewell, kReady, kMoved, kGo

}  // namespace rdfs::copy
