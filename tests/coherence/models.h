// What the objects of a file system do when nobody disturbs them, for search.h: a value, a few
// names in one directory, the locks of one file. Values.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace rdfs::coherence {

// One value, which may come back: a file's mode.
struct RegisterModel {
  using State = std::uint64_t;
  struct Call {
    bool write = false;
    std::uint64_t value = 0;
  };
  static bool Step(State& state, const Call& call);
  static std::string Tell(const Call& call);
};

// What each name of a directory means: an inode, or nothing (0).
struct NamesModel {
  static constexpr std::size_t kNames = 3;
  using State = std::array<std::uint64_t, kNames>;
  enum class Kind : std::uint8_t { kCreate, kLink, kRename, kUnlink, kLook };
  struct Call {
    Kind kind = Kind::kLook;
    std::size_t name = 0, other = 0;  // kLink, kRename: `name` as, or to, `other`
    int error = 0;                    // ENOENT, EEXIST
    std::uint64_t inode = 0;          // that kCreate has made or kLook has seen
  };
  static bool Step(State& state, const Call& call);
  static std::string Tell(const Call& call);
};

// The fcntl locks of one file, by bytes, or its flocks, as if it had one byte.
struct LocksModel {
  struct Held {
    std::uint64_t byte = 0, owner = 0;
    bool exclusive = false;
    friend auto operator<=>(const Held&, const Held&) = default;
  };
  using State = std::vector<Held>;  // sorted
  enum class Kind : std::uint8_t {
    kGranted,
    kRefused,  // somebody else has it; a flock of another kind is given up (flock(2))
    kUnlock,
    kLost,  // all that its owner has
  };
  struct Call {
    Kind kind = Kind::kGranted;
    std::uint64_t owner = 0;
    bool exclusive = false;
    bool flock = false;
    std::uint64_t start = 0, end = 0;  // inclusive
  };
  static bool Step(State& state, const Call& call);
  static std::string Tell(const Call& call);
};

}  // namespace rdfs::coherence
