// `rdsock --pair`, `--pairs` and `--unpair`: makes, shows and forgets the pairings of this user
// with users of other hosts (far/pairs.h). A key drawn here goes to the other host through ssh's
// standard input; both sides store it with the other's addresses.
//
// One thread; blocks for ssh, files and names. What is wrong is said on standard error, in one
// line; the results are exit statuses.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/sock/far/pairs.h"
#include "transport/base/status.h"

namespace rdfs::sock {

struct PairOptions {
  std::string destination;      // [user@]host, as ssh takes it
  std::string path = "rdsock";  // of the program there
  std::string ssh = "ssh";      // a command
};

int PairMain(const PairOptions& options);
int ListPairsMain();
int UnpairMain(const std::string& host);
// The other side of --pair: `rdsock --far-pair`, which ssh has started.
int FarPairMain();

// What each side says of itself: "NAME PORT ADDRESS...".
struct Side {
  std::string name;  // from the side that was asked: of the pairing; else of the host
  std::uint16_t port = 0;
  std::vector<far::Address> addresses;
};
// Pure. Errors: kProtocolError.
std::string Format(const Side& side);
Result<Side> ParseSide(std::string_view text);
// Pure. `addresses` without those that are `ours`, too: of both hosts, they name neither.
std::vector<far::Address> Without(std::vector<far::Address> addresses,
                                  const std::vector<far::Address>& ours);
// Pure. Forgets those that have one of the addresses; true if there were any.
bool Forget(far::Pairs& pairs, const std::vector<far::Address>& addresses);

}  // namespace rdfs::sock
