#include "tools/sock/far/pairs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "transport/base/fd.h"
#include "transport/base/home_directory.h"
#include "transport/base/parse_number.h"

namespace rdfs::sock::far {
namespace {

constexpr std::string_view kFirstLine = "rdsock-pairs 1";
constexpr std::size_t kMostBytes = 1 << 20;
constexpr std::size_t kMostName = 64;

// The words of a line.
std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t length = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, length));
    line.remove_prefix(length);
  }
}

Result<Pair> ParsePair(const std::vector<std::string_view>& words) {
  const Status shape(Code::kInvalidArgument, "want 'pair NAME KEY PORT ADDRESS...'");
  if (words.size() < 5 || !IsNameOfPair(words[1]) || words[2].size() > transport::Key::kMaxBytes) {
    return shape;
  }
  const auto port = ParseNumber<std::uint16_t>(words[3]);
  if (!port || *port == 0) return shape;
  Pair pair{.name = std::string(words[1]),
            .key = transport::Key(words[2]),
            .port = *port,
            .addresses = {}};
  for (std::size_t i = 4; i < words.size(); ++i) {
    RDFS_ASSIGN_OR_RETURN(const Address address, ParseAddress(words[i]));
    pair.addresses.push_back(address);
  }
  return pair;
}

Status ParseListen(const std::vector<std::string_view>& words, Pairs& pairs) {
  const auto port = words.size() < 2 ? std::nullopt : ParseNumber<std::uint16_t>(words[1]);
  if (!port) return {Code::kInvalidArgument, "want 'listen PORT [ADDRESS...]'"};
  pairs.listen = *port;
  pairs.listen_at.clear();
  for (std::size_t i = 2; i < words.size(); ++i) {
    RDFS_ASSIGN_OR_RETURN(const Address address, ParseAddress(words[i]));
    pairs.listen_at.push_back(address);
  }
  return {};
}

Status ParseLine(std::string_view line, Pairs& pairs) {
  const auto words = Words(line);
  if (words.empty() || words[0].front() == '#') return {};
  if (words[0] == "listen") return ParseListen(words, pairs);
  if (words[0] == "over" && words.size() == 2 && (words[1] == "tcp" || words[1] == "verbs")) {
    pairs.over_tcp = words[1] == "tcp";
    return {};
  }
  if (words[0] != "pair") return {Code::kInvalidArgument, "want 'listen', 'over' or 'pair'"};
  RDFS_ASSIGN_OR_RETURN(Pair pair, ParsePair(words));
  if (pairs.Named(pair.name) != nullptr)
    return {Code::kInvalidArgument, "this name is there twice"};
  if (pairs.pairs.size() == Pairs::kMost) return {Code::kInvalidArgument, "too many pairings"};
  pairs.pairs.push_back(std::move(pair));
  return {};
}

Status CheckOwner(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return Status::FromErrno(errno, path);
  if (!S_ISREG(status.st_mode)) return {Code::kInvalidArgument, path + " is no file"};
  if (status.st_uid != geteuid()) {
    return {Code::kInvalidArgument, path + " belongs to another user; remove it"};
  }
  if ((status.st_mode & 077U) != 0) {
    return {Code::kInvalidArgument, fmt::format("others may read {0}: chmod 600 {0}", path)};
  }
  return {};
}

Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t went = write(fd, text.data(), text.size());
    if (went < 0 && errno == EINTR) continue;
    if (went < 0) return Status::FromErrno(errno, "cannot write the pairings");
    text.remove_prefix(static_cast<std::size_t>(went));
  }
  return {};
}

}  // namespace

bool IsNameOfPair(std::string_view name) {
  return !name.empty() && name.size() <= kMostName && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

Result<Address> ParseAddress(std::string_view text) {
  const std::string name(text);
  Address address{};
  in_addr four{};
  if (inet_pton(AF_INET, name.c_str(), &four) == 1) {
    address[10] = address[11] = 0xff;
    std::memcpy(&address[12], &four, sizeof(four));
    return address;
  }
  if (inet_pton(AF_INET6, name.c_str(), address.data()) == 1) return address;
  return Status(Code::kInvalidArgument, fmt::format("'{}' is no address", text));
}

std::string ToString(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  in6_addr six;
  std::memcpy(&six, address.data(), sizeof(six));
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    (void)inet_ntop(AF_INET, &address[12], text, sizeof(text));
  } else {
    (void)inet_ntop(AF_INET6, &six, text, sizeof(text));
  }
  return text;
}

const Pair* Pairs::WithAddress(const Address& address) const {
  const auto found = std::ranges::find_if(pairs, [&](const Pair& pair) {
    return std::ranges::find(pair.addresses, address) != pair.addresses.end();
  });
  return found == pairs.end() ? nullptr : &*found;
}

const Pair* Pairs::Named(std::string_view name) const {
  const auto found = std::ranges::find(pairs, name, &Pair::name);
  return found == pairs.end() ? nullptr : &*found;
}

Result<std::string> PairsPath() {
  const char* const config = getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return std::string(config) + "/rdsock/pairs";
  const std::string home = HomeDirectory();
  if (home.empty()) {
    return Status(Code::kNotFound, "this user has no home folder for the pairings: set HOME");
  }
  return home + "/.config/rdsock/pairs";
}

Result<Pairs> ParsePairs(std::string_view text) {
  Pairs pairs;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    if (number == 1) {
      if (line == kFirstLine) continue;
      return Status(Code::kInvalidArgument,
                    fmt::format("the first line is not '{}': this file is of another version, or "
                                "no file of pairings",
                                kFirstLine));
    }
    const Status status = ParseLine(line, pairs);
    if (!status.ok()) return status.WithContext(fmt::format("line {}", number));
  }
  return pairs;
}

std::string Format(const Pairs& pairs) {
  std::string text = fmt::format("{}\nlisten {}", kFirstLine, pairs.listen);
  for (const Address& address : pairs.listen_at) text += " " + ToString(address);
  text += fmt::format("\nover {}\n", pairs.over_tcp ? "tcp" : "verbs");
  for (const Pair& pair : pairs.pairs) {
    text += fmt::format("pair {} {} {}", pair.name, pair.key.text(), pair.port);
    for (const Address& address : pair.addresses) text += " " + ToString(address);
    text += '\n';
  }
  return text;
}

Result<Pairs> ReadPairs(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) {
    return Status(Code::kNotFound, "no host is paired: rdsock --pair HOST");
  }
  if (!fd.valid()) return Status::FromErrno(errno, path);
  RDFS_RETURN_IF_ERROR(CheckOwner(fd.get(), path));
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t got = read(fd.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, path);
    if (got == 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > kMostBytes) return Status(Code::kInvalidArgument, path + " is too large");
  }
  auto pairs = ParsePairs(text);
  if (!pairs.ok()) return pairs.status().WithContext(path);
  return pairs;
}

std::string StampOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return std::to_string(status.st_ino) + " " + std::to_string(status.st_mtim.tv_sec) + " " +
         std::to_string(status.st_mtim.tv_nsec);
}

Status MakePairsFolder(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error) return Status::FromErrno(error.value(), folder.string());
  if (made && chmod(folder.c_str(), 0700) != 0) return Status::FromErrno(errno, folder.string());
  return {};
}

Status WritePairs(const std::string& path, const Pairs& pairs) {
  RDFS_RETURN_IF_ERROR(MakePairsFolder(path));
  std::string temporary = path + ".XXXXXX";
  Fd fd(mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (!fd.valid()) return Status::FromErrno(errno, temporary);
  Status status = WriteAll(fd.get(), Format(pairs));
  if (status.ok() && fsync(fd.get()) != 0) status = Status::FromErrno(errno, temporary);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = Status::FromErrno(errno, path);
  }
  if (!status.ok()) (void)unlink(temporary.c_str());
  return status;
}

}  // namespace rdfs::sock::far
