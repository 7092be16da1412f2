// What the command `rdsock` asks of the library, through the environment; and the counts that it
// shows. Read once when the library is loaded; any thread after that.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rdfs::sock {

inline constexpr const char* kOnlyVariable = "RDSOCK_ONLY";
inline constexpr const char* kExceptVariable = "RDSOCK_EXCEPT";
inline constexpr const char* kRequireVariable = "RDSOCK_REQUIRE";
inline constexpr const char* kStatsVariable = "RDSOCK_STATS";

// Ports and addresses: "5432,127.0.0.1,10.0.0.0/8,::1". A connection matches when one of its two
// ports, or the other end's address, is among them.
class Filter {
 public:
  static constexpr std::size_t kMostRules = 32;

  // False, with nothing changed, when `text` is not such a list or too long. What is wrong is in
  // `wrong`: a part of `text`.
  bool Parse(std::string_view text, std::string_view& wrong);
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] bool Matches(const sockaddr_storage& here, const sockaddr_storage& there) const;

 private:
  struct Rule {
    std::uint16_t port = 0;  // 0: the address says it
    std::array<std::uint8_t, 16> address{};
    unsigned bits = 0;  // how many of them count
  };
  static bool ParseRule(std::string_view text, Rule& rule);

  std::array<Rule, kMostRules> rules_{};
  std::size_t count_ = 0;
};

// Why a connection stays on TCP.
enum class Reason : std::uint8_t {
  kFiltered,     // --only or --except
  kElsewhere,    // the other end is not on this host, and there is no carrier
  kAlone,        // nobody came: the other end is not under rdsock, or has too little to say
  kShared,       // several processes hold it, or may
  kStranger,     // the other end is another user's than it says
  kNeedsTcp,     // the program does with it what only TCP can
  kNoRoom,       // no descriptors or no memory
  kEnded,        // over before both ends could meet, and no attempt was made in vain
  kOnlyHere,     // the other end is not on this host, and --require=shm
  kNotPaired,    // the carrier knows no pairing with the other end's address
  kUnreachable,  // the other host's carrier does not answer
  kNoRdma,       // there is none between the two hosts
  kUring,        // the program uses it by io_uring
  kCount
};

// In memory shared with `rdsock --stats`. Whoever can write there is the same user.
struct Counts {
  std::atomic<std::uint64_t> connections{0}, upgraded{0}, left{0};
  std::atomic<std::uint64_t> far{0};  // upgraded ones with another host
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Reason::kCount)> stayed{};
  std::atomic<std::uint64_t> bytes_sent{0}, bytes_received{0};  // of upgraded connections
  std::atomic<std::uint64_t> sends{0}, receives{0}, bells{0}, sleeps{0};
};

struct Settings {
  Filter only, except;
  bool require = false;
  bool require_here = false;  // on this host, that is
  Counts* counts;
};

// Never fails: what is malformed is as if it were not there; `rdsock` has said so.
const Settings& TheSettings();
inline Counts& TheCounts() { return *TheSettings().counts; }

}  // namespace rdfs::sock
