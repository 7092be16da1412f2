#include "tools/sock/pairing.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/parse_number.h"
#include "transport/base/resolve.h"
#include "transport/base/say.h"
#include "transport/base/sigpipe.h"
#include "transport/ssh/bootstrap.h"
#include "transport/ssh/launch.h"
#include "transport/ssh/stdio.h"

namespace rdfs::sock {
namespace {

namespace ssh = transport::ssh;
using far::Address;
using far::Pairs;
using std::chrono_literals::operator""s;

constexpr std::string_view kMagic = "RDSOCK-PAIR-1";
constexpr ssh::Program kFarRdsock{.name = "rdsock",
                                  .arguments = "--far-pair",
                                  .magic = kMagic,
                                  .path_option = "--far-rdsock PATH",
                                  .ssh_option = "--ssh CMD",
                                  .deadline_option = ""};
constexpr const char* kHint =
    "--far-pair is for rdsock, which starts it over ssh on the other host; give --pair HOST "
    "instead";

constexpr auto kTimeToReply = 20s;
constexpr std::size_t kMostLine = 4096;
constexpr std::size_t kMostAddresses = 32;
constexpr std::size_t kMostHostName = 24;
constexpr int kPortsToTry = 200;

int Fail(const Status& status) {
  Say("rdsock: {}\n", status.message());
  return 1;
}
int Ended(const Status& status) { return status.ok() ? 0 : Fail(status); }

Address FromSockaddr(const sockaddr& any) {
  Address address{};
  if (any.sa_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &any, sizeof(four));
    address[10] = address[11] = 0xff;
    std::memcpy(&address[12], &four.sin_addr, sizeof(four.sin_addr));
  } else {
    sockaddr_in6 six;
    std::memcpy(&six, &any, sizeof(six));
    std::memcpy(address.data(), &six.sin6_addr, sizeof(six.sin6_addr));
  }
  return address;
}

bool IsLoopback(const Address& address) {
  const bool four = address[10] == 0xff && address[11] == 0xff;
  return four ? address[12] == 127 : address[15] == 1 && address[0] == 0;
}

void AddOnce(std::vector<Address>& addresses, const Address& address) {
  if (addresses.size() < kMostAddresses && std::ranges::find(addresses, address) == addresses.end())
    addresses.push_back(address);
}

// Whether other hosts can reach it: not a loopback's, not one that a link's name belongs to.
bool IsForOthers(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_LOOPBACK) != 0) return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  const Address address = FromSockaddr(*entry.ifa_addr);
  return !(address[0] == 0xfe && (address[1] & 0xc0) == 0x80);
}

std::vector<Address> OwnAddresses() {
  std::vector<Address> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(all, freeifaddrs);
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (IsForOthers(*entry)) AddOnce(addresses, FromSockaddr(*entry->ifa_addr));
  }
  return addresses;
}

// What a name or a numeric address stands for; nothing if that is not known.
std::vector<Address> AddressesOf(const std::string& host) {
  std::vector<Address> addresses;
  const auto all = ResolveHost(host, 0, 0, DeadlineAfter(kResolveTime));
  if (!all.ok()) return addresses;
  for (const addrinfo* entry = all->get(); entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) {
      AddOnce(addresses, FromSockaddr(*entry->ai_addr));
    }
  }
  return addresses;
}

// This host's, of what names of pairings may hold.
std::string OwnName() {
  std::array<char, 256> name{};
  (void)gethostname(name.data(), name.size() - 1);
  std::string out;
  for (const char c : std::string_view(name.data())) {
    if (c == '.' || out.size() == kMostHostName) break;
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    out += plain ? c : '-';
  }
  return out.empty() ? "host" : out;
}

bool PortIsFree(int port) {
  const Fd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<std::uint16_t>(port));
  return !fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0;
}

// Other users' carriers may run on this host, too.
std::uint16_t FreePort() {
  for (int i = 0; i < kPortsToTry; i += 2) {
    const int port = far::kFirstCarrierPort + i;
    if (PortIsFree(port) && PortIsFree(port + 1)) return static_cast<std::uint16_t>(port);
  }
  return far::kFirstCarrierPort;
}

// The file, or a new one's contents.
Result<Pairs> ReadOrNew(const std::string& path) {
  Result<Pairs> pairs = far::ReadPairs(path);
  if (pairs.ok() || pairs.status().code() != Code::kNotFound) return pairs;
  Pairs fresh;
  fresh.listen = FreePort();
  return fresh;
}

// Reads the file, changes it, and writes it; nobody else's change is lost.
template <typename Change>
Status ChangePairs(Change change) {
  RDFS_ASSIGN_OR_RETURN(const std::string path, far::PairsPath());
  RDFS_RETURN_IF_ERROR(far::MakePairsFolder(path));
  const Fd lock(open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return Status::FromErrno(errno, path + ".lock");
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Status::FromErrno(errno, path + ".lock");
  }
  RDFS_ASSIGN_OR_RETURN(Pairs pairs, ReadOrNew(path));
  RDFS_RETURN_IF_ERROR(change(pairs));
  return far::WritePairs(path, pairs);
}

// The other side stores it.
Status CheckListens(const Pairs& pairs) {
  if (pairs.listen != 0) return {};
  return {
      Code::kInvalidArgument,
      fmt::format("the pairings of host '{}' say 'listen 0', any free port, which no other host "
                  "can know; give one there, as in 'listen {}'",
                  OwnName(), far::kFirstCarrierPort)};
}

Status Add(Pairs& pairs, const Side& other, std::string name, const transport::Key& key) {
  if (other.addresses.empty()) {
    return {Code::kInvalidArgument,
            "the two hosts have no address by which one could reach the other"};
  }
  (void)Forget(pairs, other.addresses);
  if (pairs.pairs.size() >= Pairs::kMost) {
    return {Code::kInvalidArgument, "too many hosts are paired; forget some: rdsock --unpair HOST"};
  }
  pairs.pairs.push_back(
      {.name = std::move(name), .key = key, .port = other.port, .addresses = other.addresses});
  return {};
}

// One line, byte by byte.
Result<std::string> ReadLine(transport::tcp::ByteStream& stream, Deadline deadline) {
  std::string line;
  while (line.size() < kMostLine) {
    std::byte byte;
    RDFS_ASSIGN_OR_RETURN(const std::size_t got, stream.Read(MutableByteSpan(&byte, 1)));
    if (got == 1 && byte == std::byte{'\n'}) return line;
    if (got == 1) {
      line += static_cast<char>(byte);
      continue;
    }
    pollfd entry{stream.read_fd(), stream.read_events(), 0};
    const int ready = poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now()));
    if (ready == 0 || (ready < 0 && errno != EINTR)) break;
  }
  return Status(Code::kProtocolError,
                "the other host's rdsock does not answer as this one does; "
                "install the same release at both ends");
}

ssh::Launch LaunchOf(const PairOptions& options, std::vector<std::string> ssh_command) {
  ssh::Launch launch{.program = kFarRdsock,
                     .ssh_command = std::move(ssh_command),
                     .destination = options.destination,
                     .path = options.path,
                     .text = {},
                     .ask = true};
  return launch;
}

// The whole of --pair; the pairing as it stands in our file.
Result<far::Pair> PairWith(const PairOptions& options) {
  Result<std::vector<std::string>> words = ssh::SplitWords(options.ssh);
  if (!words.ok()) return words.status().WithContext("--ssh");
  if (words->empty()) return Status(Code::kInvalidArgument, "--ssh: no command is given");
  RDFS_ASSIGN_OR_RETURN(const std::string path, far::PairsPath());
  RDFS_ASSIGN_OR_RETURN(const Pairs before, ReadOrNew(path));
  RDFS_RETURN_IF_ERROR(CheckListens(before));
  const std::vector<Address> ours = OwnAddresses();
  ssh::Launch launch = LaunchOf(options, *std::move(words));
  launch.text = Format(Side{.name = OwnName(), .port = before.listen, .addresses = ours});
  RDFS_ASSIGN_OR_RETURN(ssh::Started started,
                        ssh::Start(launch, DeadlineAfter(ssh::kTimeToAnswer)));
  RDFS_ASSIGN_OR_RETURN(const std::string line,
                        ReadLine(*started.stream, DeadlineAfter(kTimeToReply)));
  RDFS_ASSIGN_OR_RETURN(Side there, ParseSide(line));
  // The name that ssh uses may lead elsewhere than any of the host's own addresses (NAT).
  const std::string name = ssh::ResolveHost(launch, DeadlineAfter(ssh::kTimeToResolve));
  for (const Address& address : AddressesOf(name)) {
    if (!IsLoopback(address)) AddOnce(there.addresses, address);
  }
  there.addresses = Without(std::move(there.addresses), ours);
  far::Pair made;
  RDFS_RETURN_IF_ERROR(ChangePairs([&](Pairs& pairs) {
    pairs.listen = before.listen;  // as the other side has been told
    Status added = Add(pairs, there, there.name, started.key);
    if (added.ok()) made = pairs.pairs.back();
    return added;
  }));
  return made;
}

// What the other side of ssh asks for, and what to tell it.
Result<Side> Accept(const ssh::Bootstrap& asked) {
  RDFS_ASSIGN_OR_RETURN(Side there, ParseSide(asked.text));
  Side here{.name = {}, .port = 0, .addresses = OwnAddresses()};
  // Two pairings of the same two hosts, by other users or anew, are two.
  here.name = there.name.substr(0, kMostHostName) + "-" + OwnName() + "-" +
              std::string(transport::Key::Random().text().substr(0, 6));
  there.addresses = Without(std::move(there.addresses), here.addresses);
  RDFS_RETURN_IF_ERROR(ChangePairs([&](Pairs& pairs) {
    if (Status listens = CheckListens(pairs); !listens.ok()) return listens;
    here.port = pairs.listen;
    return Add(pairs, there, here.name, asked.key);
  }));
  return here;
}

std::string Listed(const std::vector<Address>& addresses) {
  std::string text;
  for (const Address& address : addresses)
    text += (text.empty() ? "" : " ") + far::ToString(address);
  return text;
}

}  // namespace

std::string Format(const Side& side) {
  return fmt::format("{} {} {}", side.name, side.port, Listed(side.addresses));
}

Result<Side> ParseSide(std::string_view text) {
  const Status wrong(
      Code::kProtocolError,
      "the other host's rdsock says of itself what cannot be understood; install the "
      "same release at both ends");
  Side side;
  for (std::size_t word = 0; !text.empty(); ++word) {
    const std::size_t length = std::min(text.find(' '), text.size());
    const std::string_view piece = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    if (word == 0) {
      if (!far::IsNameOfPair(piece)) return wrong;
      side.name = piece;
    } else if (word == 1) {
      side.port = ParseNumber<std::uint16_t>(piece).value_or(0);
    } else if (!piece.empty()) {
      const auto address = far::ParseAddress(piece);
      if (!address.ok() || side.addresses.size() == kMostAddresses) return wrong;
      AddOnce(side.addresses, *address);
    }
  }
  if (side.port == 0) return wrong;
  return side;
}

std::vector<Address> Without(std::vector<Address> addresses, const std::vector<Address>& ours) {
  std::erase_if(addresses, [&](const Address& address) {
    return std::ranges::find(ours, address) != ours.end();
  });
  return addresses;
}

bool Forget(Pairs& pairs, const std::vector<Address>& addresses) {
  return std::erase_if(pairs.pairs, [&](const far::Pair& pair) {
           return std::ranges::any_of(pair.addresses, [&](const Address& address) {
             return std::ranges::find(addresses, address) != addresses.end();
           });
         }) > 0;
}

int PairMain(const PairOptions& options) {
  IgnoreSigpipe();  // of an ssh that has ended
  const Result<far::Pair> made = PairWith(options);
  if (!made.ok()) return Fail(made.status());
  Tell(
      "paired with {} as {}: {}\nIts carrier listens on port {} (TCP; RDMA: {}); a firewall has to "
      "let both through.\n",
      options.destination, made->name, Listed(made->addresses), made->port, made->port + 1);
  return Ended(Told());
}

int ListPairsMain() {
  const Result<std::string> path = far::PairsPath();
  if (!path.ok()) return Fail(path.status());
  const Result<Pairs> pairs = far::ReadPairs(*path);
  if (!pairs.ok() && pairs.status().code() == Code::kNotFound) return 0;
  if (!pairs.ok()) return Fail(pairs.status());
  for (const far::Pair& pair : pairs->pairs) {
    Tell("{} port {}: {}\n", pair.name, pair.port, Listed(pair.addresses));
  }
  return Ended(Told());
}

int UnpairMain(const std::string& host) {
  // A name of --pairs first: it needs no resolver.
  const Status status = ChangePairs([&](Pairs& pairs) {
    const auto named = [&](const far::Pair& pair) { return pair.name == host; };
    if (std::erase_if(pairs.pairs, named) > 0 || Forget(pairs, AddressesOf(host))) return Status();
    return Status(Code::kNotFound,
                  fmt::format("'{}' is not paired; rdsock --pairs shows which hosts are", host));
  });
  return status.ok() ? 0 : Fail(status);
}

int FarPairMain() {
  IgnoreSigpipe();
  const Result<ssh::Bootstrap> asked =
      ssh::ReadBootstrap(kMagic, kHint, DeadlineAfter(kTimeToReply));
  if (!asked.ok()) return Fail(asked.status());
  const Result<Side> here = Accept(*asked);
  ssh::Answer(kMagic, here.status());
  if (!here.ok()) return 1;
  const std::string line = Format(*here) + "\n";
  return write(STDOUT_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0
                                                                                             : 1;
}

}  // namespace rdfs::sock
