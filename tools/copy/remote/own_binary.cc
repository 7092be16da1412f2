#include "tools/copy/remote/own_binary.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <vector>

#include "tools/copy/file/names.h"
#include "transport/base/bytes.h"
#include "transport/base/fd.h"
#include "transport/ssh/child_process.h"

namespace rdfs::copy {
namespace {

namespace ssh = transport::ssh;
using ssh::ChildProcess;

constexpr const char* kSelf = "/proc/self/exe";
constexpr std::string_view kFilePrefix = "rdcp-";
constexpr std::size_t kFileNameBytes = 13;
constexpr std::string_view kThere = "RDCP-THERE ";
constexpr std::string_view kOtherMachine = "RDCP-OTHER ";
constexpr std::string_view kCannotRun = "RDCP-CANNOT ";
constexpr std::string_view kNoRoom = "RDCP-ROOM ";
constexpr std::size_t kMostSaid = 64 << 10;
// What a pipe that is ready takes at once without waiting.
constexpr std::size_t kPipeWrite = PIPE_BUF;

// For any login shell, csh too: one word in single quotes, one line, no '!'. $1: system and
// processor, $2: bytes.
constexpr std::string_view kScript =
    "echo; m=$(uname -sm); case $m in \"$1\") ;; *) echo \"RDCP-OTHER $m\"; exit 0 ;; esac; umask "
    "077; "
    "t=$(mktemp \"${TMPDIR:-/tmp}/rdcp-XXXXXXXX\") || "
    "{ echo \"RDCP-ROOM ${TMPDIR:-/tmp}\"; exit 0; }; "
    "trap \"rm -f \\\"$t\\\"; exit 1\" HUP INT PIPE TERM; cat >\"$t\"; "
    "if [ \"$(wc -c <\"$t\")\" -ne \"$2\" ]; then rm -f \"$t\"; "
    "echo \"RDCP-ROOM ${TMPDIR:-/tmp}\"; exit 0; fi; chmod 700 \"$t\"; "
    "w=$(\"$t\" --version 2>&1) || "
    "{ rm -f \"$t\"; echo \"RDCP-CANNOT $(echo \"$w\" | head -n 1)\"; exit 0; }; "
    "echo \"RDCP-THERE $t\"";

std::string Machine() {
  utsname names{};
  (void)uname(&names);
  return std::string(&names.sysname[0]) + " " + &names.machine[0];
}

ssh::Launch Running(const ssh::Launch& launch, const char* program, std::string_view arguments) {
  ssh::Launch out = launch;
  out.path = program;
  out.program.arguments = arguments;
  return out;
}

bool WaitFor(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now()));
    if (ready > 0) return true;
    if ((ready < 0 && errno != EINTR) || BootClock::now() >= deadline) return false;
  }
}

// All of `file`, or as much as is taken: why not more the far end says.
void Pour(int file, int pipe, Deadline deadline) {
  std::array<std::byte, kPipeWrite> piece{};
  for (;;) {
    const ssize_t got = read(file, piece.data(), piece.size());
    if (got <= 0) return;
    for (ByteSpan rest = ByteSpan(piece).first(static_cast<std::size_t>(got)); !rest.empty();) {
      if (!WaitFor(pipe, POLLOUT, deadline)) return;
      const ssize_t put = write(pipe, rest.data(), rest.size());
      if (put < 0 && errno != EINTR && errno != EAGAIN) return;
      if (put > 0) rest = rest.subspan(static_cast<std::size_t>(put));
    }
  }
}

std::string ReadToEnd(int fd, Deadline deadline) {
  std::string out;
  std::array<char, 4096> piece{};
  while (out.size() < kMostSaid && WaitFor(fd, POLLIN, deadline)) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    out.append(piece.data(), static_cast<std::size_t>(got));
  }
  return out;
}

Status Cannot(std::string sentence) { return {Code::kUnavailable, std::move(sentence)}; }

// What follows the last line that begins so.
std::optional<std::string_view> Behind(std::string_view said, std::string_view word) {
  const std::size_t at = said.rfind(word);
  if (at == said.npos || (at > 0 && said[at - 1] != '\n')) return std::nullopt;
  said.remove_prefix(at + word.size());
  said = said.substr(0, said.find('\n'));
  if (said.ends_with('\r')) said.remove_suffix(1);
  return said;
}

}  // namespace

Result<std::string> ParseSent(const std::string& destination, std::string_view machine,
                              std::string_view said) {
  if (const auto path = Behind(said, kThere); path && path->starts_with('/')) {
    return std::string(*path);
  }
  if (const auto other = Behind(said, kOtherMachine)) {
    return Cannot(fmt::format("'{}' is {}, and this rdcp is for {}: install rdfs there",
                              destination, Shown(*other), machine));
  }
  if (const auto why = Behind(said, kCannotRun)) {
    return Cannot(fmt::format("this rdcp does not run on '{}' ({}): install rdfs there",
                              destination, Shown(*why)));
  }
  if (const auto where = Behind(said, kNoRoom)) {
    return Cannot(
        fmt::format("rdcp could not be put into {} on '{}': make room there, or install "
                    "rdfs",
                    Shown(*where), destination));
  }
  return Cannot(fmt::format(
      "rdcp could not be sent to '{0}', which has no POSIX shell or closed the connection (what it "
      "says stands above): install rdfs there",
      destination));
}

Result<std::string> SendOwnBinary(const ssh::Launch& launch, Deadline deadline) {
  const Fd self(open(kSelf, O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!self.valid() || fstat(self.get(), &info) != 0) {
    return Status::FromErrno(errno, "cannot read this program to send it");
  }
  const std::string machine = Machine();
  const std::string arguments = fmt::format("-c '{}' rdcp '{}' {}", kScript, machine, info.st_size);
  RDFS_ASSIGN_OR_RETURN(
      ChildProcess::Started started,
      ChildProcess::Start(SshArguments(Running(launch, "sh", arguments)), !launch.ask));
  Pour(self.get(), started.input.get(), deadline);
  started.input.Reset();
  return ParseSent(launch.destination, machine, ReadToEnd(started.output.get(), deadline));
}

void RemoveThere(const ssh::Launch& launch, const std::string& path, Deadline deadline) {
  const std::string arguments = "-f " + ssh::FarCommand(path, "").substr(sizeof("exec ") - 1);
  auto started = ChildProcess::Start(SshArguments(Running(launch, "rm", arguments)), !launch.ask);
  if (!started.ok()) return;
  started->input.Reset();
  (void)started->process->Wait(deadline);
}

void RemoveOwnBinary() {
  std::string path(PATH_MAX, '\0');
  const ssize_t got = readlink(kSelf, path.data(), path.size());
  if (got <= 0 || static_cast<std::size_t>(got) == path.size()) return;
  path.resize(static_cast<std::size_t>(got));
  // Not what is installed: whoever types this by hand keeps it.
  const std::string_view name = NameOf(path);
  if (name.starts_with(kFilePrefix) && name.size() == kFileNameBytes) (void)unlink(path.c_str());
}

}  // namespace rdfs::copy
