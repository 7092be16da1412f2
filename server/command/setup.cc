#include "server/command/setup.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "server/command/environment.h"
#include "server/command/new_file.h"
#include "transport/base/fd.h"
#include "transport/base/home_directory.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

std::string Home() {
  std::string home = HomeDirectory();
  return home.empty() ? "/" : home;
}

std::string DefaultKeyPath() {
  const std::string config = FromEnvironment("XDG_CONFIG_HOME");
  return (config.starts_with('/') ? config : Home() + "/.config") + "/rdfs/key";
}

std::string StatePath() {
  if (::geteuid() == 0) return "/var/lib/rdfs";
  const std::string state = FromEnvironment("XDG_STATE_HOME");
  return (state.starts_with('/') ? state : Home() + "/.local/state") + "/rdfs";
}

// True when the key was made; false when there is one already.
Result<bool> MakeKeyFile(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  const bool fresh = std::filesystem::create_directories(folder, error);
  if (fresh) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  const std::string line = std::string(transport::Key::Random().text()) + "\n";
  auto made = MakeFile(path, AsBytes(line));
  if (made.ok()) return made;
  return made.status().WithContext("there is no key (give --key-file FILE, or --no-auth)");
}

bool CanBind(int family, const sockaddr* address, socklen_t size) {
  const Fd probe(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return probe.valid() && ::bind(probe.get(), address, size) == 0;
}

bool IsEveryAddress(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return four.s_addr == htonl(INADDR_ANY);
  return ::inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six);
}

// In quotation marks where a shell would make something else of it.
std::string ForShell(const std::string& word) {
  const auto is_plain = [](char c) {
    constexpr std::string_view kPlain = "_-./:=@%+,";
    const auto byte = static_cast<unsigned char>(c);
    const char lower = static_cast<char>(byte | 0x20U);
    return byte >= 0x80 || (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z') ||
           kPlain.find(c) != kPlain.npos;
  };
  if (std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') out += "'\\'";
    out += c;
  }
  return out + "'";
}

// A comma ends a word behind -o.
std::string ForMountOption(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == ',' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Result<KeySetup> SetUpKey(const Options& options) {
  KeySetup setup;
  setup.path = WithHomeDirectory(options.key_file);
  if (setup.path.empty()) {
    setup.path = DefaultKeyPath();
    RDFS_ASSIGN_OR_RETURN(setup.made, MakeKeyFile(setup.path));
  }
  auto key = transport::Key::FromFile(setup.path);
  if (!key.ok() && key.status().errno_value() == ENOENT) {
    return Status(Code::kNotFound, ENOENT,
                  "there is no key file " + setup.path +
                      "; write a key into it, with mode 0600, or leave --key-file out: rdfsd then "
                      "makes one");
  }
  RDFS_ASSIGN_OR_RETURN(setup.key, std::move(key));
  return setup;
}

HandleSecret SetUpHandleSecret() {
  auto kept = HandleSecret::LoadOrCreate(StatePath() + "/handle-secret");
  if (kept.ok()) return *kept;
  LogInfo("mounts will look their files up again when rdfsd is started again: {}",
          kept.status().message());
  return HandleSecret::Random();
}

std::vector<std::string> LoopbackAddresses() {
  std::vector<std::string> addresses = {"127.0.0.1"};
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_loopback;
  if (CanBind(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof(six))) {
    addresses.emplace_back("::1");
  }
  return addresses;
}

void WarnOfLargePool(const Options& options) {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return;
  const auto memory = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  const std::size_t pool = options.pool_bytes.value_or(0);
  if (pool <= memory) return;
  LogWarn("the pool may grow to {} MiB, and this machine has {} MiB of memory", pool >> 20U,
          memory >> 20U);
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    LogWarn("cannot raise the limit of open files: {}",
            Status::FromErrno(errno, "setrlimit").message());
  }
}

std::string MountCommand(const Options& options, const std::string& name, std::uint16_t port,
                         const std::string& key_path) {
  std::string host = "localhost";
  if (!options.listen.empty() && !IsEveryAddress(options.listen.front())) {
    host = options.listen.front();
    if (host.find(':') != host.npos) host = "[" + host + "]";
  } else if (!options.listen.empty() || !options.no_auth) {
    std::array<char, 256> buffer{};
    if (::gethostname(buffer.data(), buffer.size() - 1) == 0) host = buffer.data();
  }
  std::string source = "rdfs://" + host;
  if (port != transport::kDefaultPort) source += ":" + std::to_string(port);
  source += "/" + name;
  std::string command = "rdfs " + ForShell(source) + " MOUNTPOINT";
  if (!key_path.empty()) command += " -o " + ForShell("key_file=" + ForMountOption(key_path));
  return command;
}

}  // namespace rdfs::server
