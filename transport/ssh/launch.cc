#include "transport/ssh/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "transport/ssh/bootstrap.h"
#include "transport/ssh/child_process.h"
#include "transport/ssh/error_relay.h"

namespace rdfs::transport::ssh {
namespace {

using tcp::ByteStream;

// How long ssh may take to end once its pipes have ended.
constexpr std::chrono::seconds kEndingTime{5};

// The pipes' stream, and ssh behind it.
class SshStream final : public ByteStream {
 public:
  SshStream(std::unique_ptr<ByteStream> pipes, std::unique_ptr<ChildProcess> ssh,
            std::unique_ptr<ErrorRelay> errors)
      : errors_(std::move(errors)), ssh_(std::move(ssh)), pipes_(std::move(pipes)) {}

  Result<std::size_t> Read(MutableByteSpan out) override { return pipes_->Read(out); }
  Result<std::size_t> ReadParts(std::span<const iovec> parts) override {
    return pipes_->ReadParts(parts);
  }
  Result<std::size_t> Write(std::span<const iovec> parts) override { return pipes_->Write(parts); }
  [[nodiscard]] bool HasBufferedInput() const override { return pipes_->HasBufferedInput(); }
  [[nodiscard]] short read_events() const override { return pipes_->read_events(); }
  [[nodiscard]] short write_events() const override { return pipes_->write_events(); }
  [[nodiscard]] int read_fd() const override { return pipes_->read_fd(); }
  [[nodiscard]] int write_fd() const override { return pipes_->write_fd(); }
  [[nodiscard]] bool encrypted() const override { return true; }  // by ssh
  [[nodiscard]] std::string peer() const override { return pipes_->peer(); }
  void Shutdown() override { pipes_->Shutdown(); }

 private:
  std::unique_ptr<ErrorRelay> errors_;  // behind ssh's end: it has said all by then
  std::unique_ptr<ChildProcess> ssh_;
  std::unique_ptr<ByteStream> pipes_;  // closed first: then ssh ends
};

// Waits until `fd` is ready for `events`.
Status WaitFor(int fd, short events, Deadline deadline, std::string_view what) {
  for (;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now()));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::FromErrno(errno, "poll");
    if (ready == 0 && BootClock::now() >= deadline) {
      return {Code::kDeadlineExceeded, std::string(what)};
    }
  }
}

Status WriteAll(int fd, std::string_view text, Deadline deadline) {
  while (!text.empty()) {
    RDFS_RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline, "ssh does not take its input"));
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (wrote < 0) return Status::FromErrno(errno, "writing to ssh");
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

// The far program's answer; kDisconnected when the output ended before it. Byte by byte, because
// what follows belongs to the session.
Status ReadAnswer(int fd, const Launch& launch, Deadline deadline) {
  const std::string late =
      fmt::format("no answer from {1} on '{0}' in time; try `ssh {0} true`{2}", launch.destination,
                  launch.program.name,
                  launch.program.deadline_option.empty()
                      ? ""
                      : fmt::format(", or a longer {}", launch.program.deadline_option));
  std::string line;
  for (std::size_t total = 0; total < kMaxBootstrapNoiseBytes; ++total) {
    RDFS_RETURN_IF_ERROR(WaitFor(fd, POLLIN, deadline, late));
    char c = 0;
    const ssize_t got = read(fd, &c, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return {Code::kDisconnected, "ssh ended"};
    if (c != '\n') {
      if (line.size() < kMaxBootstrapLineBytes) line += c;
      continue;
    }
    if (std::optional<Status> answer = ParseBootstrapReply(launch.program.magic, line)) {
      return answer->WithContext(launch.destination);
    }
    line.clear();
  }
  return {Code::kProtocolError,
          fmt::format("'{0}' prints a lot before {1} answers; let its shell's start-up files print "
                      "nothing when there is no terminal (`ssh {0} true` shows it)",
                      launch.destination, launch.program.name)};
}

std::string ReadUntilEnd(int fd, std::size_t most, Deadline deadline) {
  std::string text;
  std::array<char, 4096> piece{};
  while (text.size() < most && WaitFor(fd, POLLIN, deadline, "").ok()) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string HostOf(const std::string& destination) {
  const std::size_t at = destination.rfind('@');
  return at == std::string::npos ? destination : destination.substr(at + 1);
}

// What ssh would take for an option, which may name a command to run here (ProxyCommand).
bool IsDestination(std::string_view text) { return !text.empty() && text.front() != '-'; }

Status SendPreamble(int fd, const Launch& launch, const Key& key, Deadline deadline) {
  std::string line =
      EncodeBootstrapRequest(launch.program.magic, {.key = key.text(), .text = launch.text});
  Status sent = WriteAll(fd, line, deadline);
  explicit_bzero(line.data(), line.size());
  return sent;
}

}  // namespace

Result<std::vector<std::string>> SplitWords(std::string_view text) {
  std::vector<std::string> words;
  std::optional<std::string> word;  // an empty one in quotes is one too
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (word) words.push_back(*std::move(word));
      word.reset();
      continue;
    }
    if (!word) word.emplace();
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      *word += text[++i];
    } else {
      *word += c;
    }
  }
  if (quote != 0) {
    return Status(Code::kInvalidArgument, fmt::format("the quote ({}) is not closed", quote));
  }
  if (word) words.push_back(*std::move(word));
  return words;
}

std::string FarCommand(std::string_view path, std::string_view arguments) {
  std::string out = "exec ";
  if (path.starts_with("~/")) {  // the shell's to expand
    out += "~/";
    path.remove_prefix(2);
  }
  out += '\'';
  for (const char c : path) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out.append("' ").append(arguments);
}

std::vector<std::string> SshArguments(const Launch& launch) {
  std::vector<std::string> arguments = launch.ssh_command;
  // No terminal, no agent, no X11, no forwardings: none of them is for us. And no command of
  // ssh_config's (OpenSSH 7.6), beside which ssh refuses ours.
  for (const char* word : {"-T", "-a", "-x", "-oClearAllForwardings=yes", "-oRemoteCommand=none"}) {
    arguments.emplace_back(word);
  }
  if (!launch.ask) arguments.emplace_back("-oBatchMode=yes");
  arguments.push_back(launch.destination);
  arguments.push_back(FarCommand(launch.path, launch.program.arguments));
  return arguments;
}

std::vector<std::string> SshQueryArguments(const Launch& launch) {
  std::vector<std::string> arguments = launch.ssh_command;
  arguments.emplace_back("-T");
  arguments.emplace_back("-G");
  arguments.push_back(launch.destination);
  return arguments;
}

std::string ParseSshHostname(std::string_view output) {
  constexpr std::string_view kWord = "hostname ";
  while (!output.empty()) {
    const std::size_t end = output.find('\n');
    const std::string_view line = output.substr(0, end);
    if (line.starts_with(kWord)) return std::string(line.substr(kWord.size()));
    if (end == output.npos) break;
    output.remove_prefix(end + 1);
  }
  return {};
}

Status ExplainSshExit(const Launch& launch, int wait_status) {
  const auto because = [](std::string sentence) {
    return Status(Code::kUnavailable, std::move(sentence));
  };
  if (WIFSIGNALED(wait_status)) {
    return because(fmt::format("ssh to '{}' was ended by signal {}", launch.destination,
                               WTERMSIG(wait_status)));
  }
  switch (const int code = WEXITSTATUS(wait_status)) {
    case 255:
      return because(fmt::format(
          "ssh could not reach '{0}' (what it says stands above); see that `ssh {0} true` "
          "works",
          launch.destination));
    case 126:
    case 127:
      return {Code::kUnavailable, ENOENT,
              fmt::format("'{}' could not be run on '{}'; install rdfs there, or say where its {} "
                          "is: {}",
                          launch.path, launch.destination, launch.program.name,
                          launch.program.path_option)};
    default:
      return because(fmt::format(
          "'{}' on '{}' ended with status {} before it answered; is it an {} of this version?",
          launch.path, launch.destination, code, launch.program.name));
  }
}

Result<Started> Start(const Launch& launch, Deadline deadline) {
  if (!IsDestination(launch.destination)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is no host that ssh can reach: a host or user is not empty and "
                              "does not begin with '-'",
                              launch.destination));
  }
  // Declared before ssh: what that has said stands above what we say of its end.
  std::unique_ptr<ErrorRelay> errors;
  if (launch.relay_errors) {
    RDFS_ASSIGN_OR_RETURN(errors, ErrorRelay::Create());
  }
  Result<ChildProcess::Started> started =
      ChildProcess::Start(SshArguments(launch), /*own_session=*/!launch.ask,
                          errors == nullptr ? -1 : errors->child_end());
  if (errors != nullptr) errors->CloseChildEnd();
  if (!started.ok()) {
    return Status(Code::kUnavailable,
                  started.status().message() +
                      fmt::format("; install the package openssh-client, or name the program: {}",
                                  launch.program.ssh_option));
  }
  Started out{.stream = nullptr, .key = Key::Random()};
  Status answer = SendPreamble(started->input.get(), launch, out.key, deadline);
  // An ssh that ends at once takes no input; its exit status says more than EPIPE.
  if (answer.ok() || answer.errno_value() == EPIPE) {
    answer = ReadAnswer(started->output.get(), launch, deadline);
  }
  if (answer.ok()) {
    out.stream = std::make_unique<SshStream>(
        tcp::MakePipeStream(std::move(started->output), std::move(started->input),
                            "ssh " + launch.destination),
        std::move(started->process), std::move(errors));
    return out;
  }
  started->input.Reset();
  started->output.Reset();
  if (answer.code() != Code::kDisconnected) return answer;
  const std::optional<int> status = started->process->Wait(DeadlineAfter(kEndingTime));
  if (status) return ExplainSshExit(launch, *status);
  return Status(Code::kUnavailable,
                fmt::format("ssh to '{0}' closed its output before {1} answered; see that `ssh {0} "
                            "true` works and prints nothing",
                            launch.destination, launch.program.name));
}

std::string ResolveHost(const Launch& launch, Deadline deadline) {
  const std::string fallback = HostOf(launch.destination);
  if (!IsDestination(launch.destination)) return fallback;
  Result<ChildProcess::Started> asked =
      ChildProcess::Start(SshQueryArguments(launch), /*own_session=*/true);
  if (!asked.ok()) return fallback;
  asked->input.Reset();
  const std::string name =
      ParseSshHostname(ReadUntilEnd(asked->output.get(), 256U << 10U, deadline));
  return name.empty() ? fallback : name;
}

}  // namespace rdfs::transport::ssh
