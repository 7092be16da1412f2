#include "tools/pipe/command/options.h"

#include <fmt/core.h>
#include <sodium.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "transport/base/command_line.h"
#include "transport/base/parse_number.h"
#include "transport/base/say.h"

namespace rdfs::pipe {
namespace {

using transport::Key;

constexpr const char* kKeyVariable = "RDFS_KEY";

constexpr std::string_view kAboutKeys = R"(
The key:
  Any text; both ends give the same. It never travels, and who listens or pretends learns nothing to
  guess it from. Given on the command line it is overwritten as soon as the program runs; that does not
  protect it from your shell's history, from whoever looks in the milliseconds before, or from
  accounting and auditing of commands. --key-file, --key-fd and RDFS_KEY do; with one of them KEY is
  left out of the command line. The environment can be read by your own processes and root.
)";

// What is optional depends on where the key is: CLI11 cannot tell it by itself.
class WithUsage final : public CLI::Formatter {
 public:
  explicit WithUsage(std::string usage) : usage_("Usage: " + std::move(usage) + "\n") {}
  std::string make_usage(const CLI::App*, std::string) const override { return usage_; }

 private:
  const std::string usage_;
};

struct Words {
  std::vector<std::string> words;
  std::string key_file;
  int key_fd = -1;
  std::string require;
  double silence = 60;
  double wait = -1;
};

void DeclareCommon(CLI::App& app, const char* verbose, Words& words, CommonOptions& out) {
  app.add_option("ARGUMENTS", words.words)->group("");
  app.add_flag("-v", out.verbosity, verbose);
  app.add_flag("-q,--quiet", out.quiet, "No progress on the terminal");
  app.add_option("--key-file", words.key_file,
                 "The key is the first line of this file (mode 0600)");
  app.add_option("--key-fd", words.key_fd, "The key is the next line of this descriptor")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  app.add_option("--require", words.require, "Only this transport; else fail and say why")
      ->check(CLI::IsMember({"verbs", "shm", "tcp"}));
  app.add_flag("--encrypt", out.encrypt,
               "Encrypt and authenticate every byte (AES-256-GCM, from the key), also over RDMA");
  app.add_option("--timeout", words.silence,
                 "Give up a silent peer after so many seconds; 0: never")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
}

int Wrong(std::string_view name, const std::string& what) {
  Say("{}: {}; see {} --help\n", name, what, name);
  return 2;
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

// Takes RDFS_KEY out of the environment: no child inherits it, and /proc/PID/environ forgets it.
std::optional<std::string> TakeVariable() {
  char* value = std::getenv(kKeyVariable);
  if (value == nullptr) return std::nullopt;
  std::string out(value);
  sodium_memzero(value, std::strlen(value));
  unsetenv(kKeyVariable);
  return out;
}

Status CheckText(const std::string& text, std::string_view source) {
  if (!text.empty() && text.size() <= Key::kMaxBytes) return {};
  return {Code::kInvalidArgument,
          fmt::format("the key {} {}", source,
                      text.empty() ? "is empty" : "is longer than 1024 bytes")};
}

// `text`: KEY of the command line, where it stands there.
Result<Key> FindKey(const Words& words, const std::optional<std::string>& text,
                    const std::optional<std::string>& variable) {
  if (!words.key_file.empty()) return Key::FromFile(words.key_file);
  if (words.key_fd >= 0) return Key::FromFd(words.key_fd);
  const std::string& from = variable ? *variable : *text;
  RDFS_RETURN_IF_ERROR(CheckText(from, variable ? "in RDFS_KEY" : "on the command line"));
  return Key(from);
}

// CLI11 would take "4 M" as well.
CLI::Validator WithoutBlanks() {
  return {[](std::string& word) {
            const bool blank = word.find_first_of(" \t\n") != std::string::npos;
            return blank ? fmt::format("a size is a number and K, M or G, not '{}'", word)
                         : std::string();
          },
          ""};
}

// As CLI::Range, of a size.
CLI::Validator BytesIn(std::uint32_t least, std::uint32_t most) {
  const CLI::Range range(least, most);
  return {[range](std::string& word) {
            const std::string wrong = range(word);
            return wrong.empty() ? wrong : wrong + " bytes";
          },
          range.get_description()};
}

bool ParsePort(const std::string& text, std::uint16_t& out) {
  const auto port = ParseNumber<std::uint16_t>(text);
  if (!port || text.size() > 5) return false;
  out = *port;
  return true;
}

// What the two have in common behind CLI11: `leading` words before PORT, then KEY and FILE.
std::optional<Exit> Finish(std::string_view name, int argc, char** argv, Words& words,
                           std::size_t leading, CommonOptions& out) {
  const auto variable = TakeVariable();
  // Who gives the same key twice has not named a file after it.
  if (variable && words.words.size() > leading + 1 && words.words[leading + 1] == *variable) {
    ScrubArguments(argc, argv, *variable);
    words.words.erase(words.words.begin() + static_cast<std::ptrdiff_t>(leading + 1));
  }
  const bool key_elsewhere = !words.key_file.empty() || words.key_fd >= 0 || variable;
  const std::size_t least = leading + 1 + (key_elsewhere ? 0 : 1);
  std::optional<std::string> text;
  if (!key_elsewhere && words.words.size() > leading + 1) {
    text = words.words[leading + 1];
    ScrubArguments(argc, argv, *text);
  }
  const std::string usage =
      fmt::format("{}PORT {}[FILE]", leading > 0 ? "HOST " : "", key_elsewhere ? "" : "KEY ");
  if (words.words.size() < least || words.words.size() > least + 1) {
    return Exit{Wrong(name, fmt::format("give {}{}", usage,
                                        key_elsewhere ? " (the key comes from elsewhere)" : ""))};
  }
  if (!words.key_file.empty() && words.key_fd >= 0) {
    return Exit{Wrong(name, "give --key-file or --key-fd, not both")};
  }
  if (!ParsePort(words.words[leading], out.port)) {
    return Exit{Wrong(name, fmt::format("'{}' is not a port", words.words[leading]))};
  }
  auto key = FindKey(words, text, variable);
  if (!key.ok()) {
    Say("{}: {}\n", name, key.status().message());
    return Exit{1};
  }
  out.key = *std::move(key);
  if (words.words.size() > least) out.file = words.words[least];
  if (!words.require.empty()) out.require = transport::KindFromName(words.require);
  out.silence = Milliseconds(words.silence);
  if (words.wait >= 0) out.wait = Milliseconds(words.wait);
  return std::nullopt;
}

std::optional<Exit> Parse(CLI::App& app, std::string_view name, int argc, char** argv) {
  try {
    ParseWords(app, argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return Exit{TellAsked(app, done, name)};
  } catch (const CLI::ParseError& error) {
    return Exit{Wrong(name, error.what())};
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<transport::HostAndPort>> ParseHosts(const std::string& text,
                                                       std::uint16_t port) {
  std::vector<transport::HostAndPort> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    RDFS_ASSIGN_OR_RETURN(auto hop, transport::HostAndPort::Parse(text.substr(at, end - at), port));
    // Any free one: of who listens, that is.
    if (hop.port == 0) {
      return Status(Code::kInvalidArgument,
                    fmt::format("0 is not a port of '{}': give the one that its rdrecv listens on",
                                hop.host));
    }
    out.push_back(std::move(hop));
    at = end + 1;
  }
  RDFS_RETURN_IF_ERROR(CheckHops(out));
  return out;
}

Status CheckHops(const std::vector<transport::HostAndPort>& hosts) {
  bool fits = hosts.size() <= kMaxHops;
  std::size_t bytes = 0;
  for (const transport::HostAndPort& hop : hosts) {
    const std::size_t size = HopName(hop).size();
    bytes += size + 2;
    fits = fits && size <= kMaxHopName && bytes <= kMaxHopsBytes;
  }
  if (fits) return {};
  return {Code::kInvalidArgument,
          fmt::format("one stream goes to {} hosts at most, whose names have {} bytes together; "
                      "send it once more to the others",
                      kMaxHops, kMaxHopsBytes)};
}

std::string HopName(const transport::HostAndPort& hop) {
  const bool bare = hop.host.find(':') == std::string::npos;
  return fmt::format("{}{}{}:{}", bare ? "" : "[", hop.host, bare ? "" : "]", hop.port);
}

void ScrubArguments(int argc, char** argv, const std::string& secret) {
  for (int i = 1; i < argc; ++i) {
    if (secret == argv[i]) sodium_memzero(argv[i], std::strlen(argv[i]));
  }
}

std::optional<Exit> ParseSend(int argc, char** argv, SendOptions& out) {
  CLI::App app(
      "Sends standard input, or FILE, to rdrecv at HOST: over RDMA, shared memory or TCP, "
      "whichever\n"
      "is the best that works. Exit status 0 only if the receiver has confirmed all of it. "
      "Several\n"
      "HOSTs (or HOST:PORTs) get it each from the one before, and keep a copy each.");
  app.formatter(std::make_shared<WithUsage>("rdsend [OPTIONS] HOST[,HOST...] PORT KEY [FILE]"));
  app.footer(std::string(kAboutKeys));
  app.set_version_flag("--version", "rdsend " RDFS_VERSION);
  Words words;
  words.wait = 10;
  DeclareCommon(app, "Say bandwidth, transport and why; twice: more", words, out);
  app.add_option("--wait", words.wait, "For rdrecv to come up, in seconds")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--plaintext", out.plaintext, "No TLS over TCP to another host");
  // No number to write to: newer CLI11 takes that for a count, and checks the 0 of none.
  static const std::string kAboutLevel = "Compress with zstd, on all processors; =LEVEL is 1 to 19";
  const CLI::Option* compress =
      app.add_flag("--compress{3}", kAboutLevel)->check(CLI::Range(1, 19));
  if (const auto exit = Parse(app, "rdsend", argc, argv)) return exit;
  if (compress->count() > 0) out.level = compress->as<int>();
  if (const auto exit = Finish("rdsend", argc, argv, words, 1, out)) return exit;
  auto hosts = ParseHosts(words.words[0], out.port);
  if (!hosts.ok()) return Exit{Wrong("rdsend", hosts.status().message())};
  out.hosts = *std::move(hosts);
  return std::nullopt;
}

std::optional<Exit> ParseReceive(int argc, char** argv, ReceiveOptions& out) {
  CLI::App app(
      "Receives what one rdsend sends, to standard output or FILE. A wrong key ends only the one "
      "who\n"
      "had it. FILE appears under its name only when it is whole; a device or FIFO is written in "
      "place.");
  app.formatter(std::make_shared<WithUsage>("rdrecv [OPTIONS] PORT KEY [FILE]"));
  app.footer(std::string(kAboutKeys));
  app.set_version_flag("--version", "rdrecv " RDFS_VERSION);
  Words words;
  DeclareCommon(app, "Say bandwidth and transport; why it is that one says rdsend; twice: more",
                words, out);
  app.add_option("--wait", words.wait, "For rdsend, in seconds (default: as long as it takes)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--listen", out.listen, "Address to listen on (default: all)");
  app.add_option("--verbs-port", out.verbs_port, "RDMA's port (default: PORT + 1)")
      ->check(CLI::Range(0, 65535));
  app.add_flag("--keep-partial", out.keep_partial, "On failure keep what has come as FILE.rdpart");
  app.add_flag("--resume", out.resume,
               "Go on with FILE.rdpart, as far as its checksums are the sender's; keeps it, too");
  std::string forward;
  app.add_option("--forward", forward,
                 "Pass the stream on to an rdrecv with the same key there, too: HOST:PORT,...");
  app.add_option("--piece", out.piece_bytes, "Size of what travels at once (default: as suits)")
      ->transform(CLI::AsSizeValue(false))
      ->transform(WithoutBlanks())  // comes first
      ->check(BytesIn(kMinSlotBytes, kMaxSlotBytes));
  app.add_option("--pieces", out.pieces, "How many may be under way (default: as suits)")
      ->check(CLI::Range(1U, kMaxSlots));
  if (const auto exit = Parse(app, "rdrecv", argc, argv)) return exit;
  if (const auto exit = Finish("rdrecv", argc, argv, words, 0, out)) return exit;
  if (forward.empty()) return std::nullopt;
  auto hosts = ParseHosts(forward, out.port);
  if (!hosts.ok()) return Exit{Wrong("rdrecv", hosts.status().message())};
  out.forward = *std::move(hosts);
  return std::nullopt;
}

}  // namespace rdfs::pipe
