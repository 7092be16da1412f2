// The pairings of one user on one host: with whom connections may be carried, and the keys. A file
// of the user's own, mode 0600, made by `rdsock --pair`:
//
//   rdsock-pairs 1
//   listen 7340 [ADDRESS...]
//   over verbs
//   pair NAME KEY PORT ADDRESS...
//
// `listen` is the port of this user's carrier (TCP; RDMA uses the next one); 0 takes a free one.
// With ADDRESSes it listens on those alone, RDMA on the first. NAME (letters, digits,
// '-') is the same in both hosts' files, as is KEY: both ends of the pairing. PORT is where the
// other host's carrier listens, the ADDRESSes are that host's, as connections show them. `over tcp`
// lets connections be carried where there is no RDMA, which is slower than leaving them alone: for
// tests. Lines that begin with # are skipped.
//
// Values; any thread. Blocks for the file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/status.h"
#include "transport/session/key.h"

namespace rdfs::sock::far {

inline constexpr std::uint16_t kFirstCarrierPort = 7340;

// IPv6, or IPv4 as IPv6 has it (::ffff:a.b.c.d).
using Address = std::array<std::uint8_t, 16>;
// Errors: kInvalidArgument for what is no numeric address.
Result<Address> ParseAddress(std::string_view text);
std::string ToString(const Address& address);  // "10.0.0.2", "fd00::1"

// Letters, digits and '-', 64 of them at most.
bool IsNameOfPair(std::string_view name);

struct Pair {
  std::string name;
  transport::Key key;
  std::uint16_t port = 0;
  std::vector<Address> addresses;
};

struct Pairs {
  std::uint16_t listen = kFirstCarrierPort;
  std::vector<Address> listen_at;  // empty: everywhere
  bool over_tcp = false;
  std::vector<Pair> pairs;

  static constexpr std::size_t kMost = 1024;

  // Null when there is none. The first one counts.
  [[nodiscard]] const Pair* WithAddress(const Address& address) const;
  [[nodiscard]] const Pair* Named(std::string_view name) const;
};

// $XDG_CONFIG_HOME/rdsock/pairs, else ~/.config/rdsock/pairs. Errors: kNotFound without a home.
Result<std::string> PairsPath();

// Errors: kInvalidArgument with the line that is wrong.
Result<Pairs> ParsePairs(std::string_view text);
std::string Format(const Pairs& pairs);

// Errors: kNotFound when there is no such file; kInvalidArgument for one that others may read or
// that is another user's (the message says what to do); kErrno.
Result<Pairs> ReadPairs(const std::string& path);
// Changes whenever the file does; empty where it cannot be looked at.
std::string StampOf(const std::string& path);
// Makes the file's folder, where there is none, for this user alone (0700). Errors: kErrno.
Status MakePairsFolder(const std::string& path);
// Replaces the file at once, with its folder as MakePairsFolder does. Errors: kErrno.
Status WritePairs(const std::string& path, const Pairs& pairs);

}  // namespace rdfs::sock::far
