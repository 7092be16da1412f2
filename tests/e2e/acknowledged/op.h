// What the workload does: one call, or a few that belong together, on a mount. A value.
//
// A thread has files of its own, by number, in three directories of its own, and open files by
// slot; the rest it shares with the others, who try for the same at the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rdfs::acknowledged {

enum class Kind : std::uint8_t {
  // Of its own: `file` and `other` are names.
  kCreate,    // O_CREAT | O_EXCL into `slot`
  kOpen,      // into `slot`; flags: kAppend
  kUnlink,    // file
  kRename,    // file to other; flags: kNoReplace, kExchange
  kLink,      // file as other
  kMkdir,     // the directory of `file`
  kRmdir,     // the same
  kChmod,     // file; mode in `length`
  kTruncate,  // file, to `offset`
  kLook,      // file: opened, compared with what it must be
  // Of an open file.
  kWrite,   // length bytes at offset; where the file was opened so, at its end
  kShrink,  // ftruncate to offset
  kRead,    // compared
  kSync,
  kClose,
  // Shared: `file` counts them.
  kLog,    // one record behind the shared log
  kClaim,  // O_CREAT | O_EXCL of what all threads want to make
  kTake,   // rename of what all threads want to have
  kGrab,   // unlink of it
  kCount
};

inline constexpr std::uint32_t kAppend = 1;
inline constexpr std::uint32_t kNoReplace = 1;  // as renameat2(2)
inline constexpr std::uint32_t kExchange = 2;

inline constexpr int kDirectories = 3;  // the thread's own, and two below it
inline constexpr int kNamesEach = 6;
inline constexpr int kNames = kDirectories * kNamesEach;
inline constexpr int kSlots = 4;
inline constexpr std::uint64_t kMostBytes = 400'000;

struct Op {
  std::uint64_t number = 0;  // of the thread's; what is written shows it
  Kind kind = Kind::kLook;
  int mount = 0;
  int slot = 0;
  int file = 0;
  int other = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t flags = 0;

  [[nodiscard]] std::string ToText() const;
  static std::optional<Op> FromText(const std::string& text);
};

inline constexpr int DirectoryOf(int file) { return file / kNamesEach; }
// "d1", empty for the thread's own.
std::string DirectoryName(int directory);
// Beneath the thread's directory: "n4", "d1/n2".
std::string FileName(int file);
std::string ThreadDirectory(int thread);

// The bytes that a write leaves: they tell who wrote them, when, and where they belong.
std::string Stamp(int thread, std::uint64_t number, std::uint64_t offset, std::uint32_t length);

// Shared names and the records of the shared log, beneath the export.
inline constexpr char kLogName[] = "shared/log";
inline constexpr std::size_t kRecordBytes = 64;
std::string Record(int thread, std::uint64_t number);
std::string ClaimName(int number);
std::string FreeName(int number);
std::string TakenName(int number, int thread);
std::string GiftName(int number);

}  // namespace rdfs::acknowledged
