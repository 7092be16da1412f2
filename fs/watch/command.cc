#include "fs/watch/command.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "fs/fuse/command/dialer.h"
#include "fs/fuse/command/options.h"
#include "fs/watch/output.h"
#include "fs/watch/watcher.h"
#include "transport/base/command_line.h"
#include "transport/base/control_socket.h"
#include "transport/base/event_fd.h"
#include "transport/base/log.h"
#include "transport/base/say.h"

namespace rdfs::fs::watch {
namespace {

using std::chrono_literals::operator""s;

struct Words {
  std::vector<std::string> lists;  // of -o
  bool recursive = false;
  bool quiet = false;
  int verbosity = 0;
  std::vector<std::string> operands;
};

// A directory to be watched: where its session is from, and the way from the export's root.
struct Place {
  std::string source;
  std::string options;
  std::string path;
};

constexpr const char* kFooter = R"(
PATH is a directory on a mount of yours, or SOURCE[/DIR] as rdfs mounts it. All of one command are of
one source. A line is DIRECTORY/ EVENT[,ISDIR] NAME: CREATE, DELETE, MODIFY, ATTRIB, MOVED_FROM, MOVED_TO,
DELETE_SELF. Changes of every client are told, this host's too, and those of the server's own host.)";

// As the kernel and the mount call it: absolute, without symlinks. Empty: there is none.
std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  return real == nullptr ? std::string() : real.get();
}

// rdfs://host/name/a/b and host:dir: where the source ends. Of the latter all of it is source.
Place PlaceOfSource(const std::string& text) {
  constexpr std::string_view kScheme = "rdfs://";
  if (!text.starts_with(kScheme)) return {.source = text, .options = {}, .path = {}};
  const std::size_t name = text.find('/', kScheme.size());
  const std::size_t end = name == text.npos ? name : text.find('/', name + 1);
  if (end == text.npos) return {.source = text, .options = {}, .path = {}};
  return {.source = text.substr(0, end), .options = {}, .path = text.substr(end)};
}

// Whether nothing else is mounted in between.
bool OnOneFileSystem(const std::string& directory, const std::string& below) {
  struct stat above {};
  struct stat info {};
  return stat(directory.c_str(), &above) == 0 && stat(below.c_str(), &info) == 0 &&
         above.st_dev == info.st_dev;
}

// The mount whose directory it is, of those that answer this user: one may be on another.
Result<Place> PlaceOnMount(const std::string& path, const std::string& real) {
  std::optional<Place> found;
  std::size_t longest = 0;
  for (const std::string& control : FindControlSockets("rdfs")) {
    const auto mount = AskControl(control, "name", DeadlineAfter(2s));
    if (!mount.ok() || (real != *mount && !real.starts_with(*mount + "/"))) continue;
    if (mount->size() <= longest || !OnOneFileSystem(*mount, real)) continue;
    const auto session = AskControl(control, "session", DeadlineAfter(2s));
    if (!session.ok()) continue;
    const std::size_t line = session->find('\n');
    if (line == session->npos) continue;
    std::string options = session->substr(line + 1);
    if (options.ends_with('\n')) options.pop_back();
    longest = mount->size();
    found = Place{.source = session->substr(0, line),
                  .options = std::move(options),
                  .path = real.substr(mount->size())};
  }
  if (found) return *std::move(found);
  return Status(Code::kNotFound,
                fmt::format("{} is on no mount of this user that answers; name the source "
                            "instead, as in rdfs watch -o key_file=FILE rdfs://HOST/NAME/DIR",
                            path));
}

Result<Place> FindPlace(const std::string& operand) {
  const std::string real = RealPath(operand);
  if (!real.empty()) return PlaceOnMount(operand, real);
  const int why = errno;
  if (operand.find(':') == operand.npos) return Status::FromErrno(why, operand);
  return PlaceOfSource(operand);
}

// A descriptor that is readable when a signal asks for the end.
Result<Fd> BlockEndSignals() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&ends, signal);
  // Of nohup(1): a signal that is blocked would come though it is ignored.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN) {
    sigaddset(&ends, SIGHUP);
  }
  sigset_t blocked = ends;
  sigaddset(&blocked, SIGPIPE);  // a reader that goes is seen when it is written to
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  Fd fd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return Status::FromErrno(errno, "signalfd");
  return fd;
}

// Ends the process when it has been told to end and has not: a connection that is being made, or a
// server that is asked and is not there, hears of no signal. There is nothing to lose.
class EndsByForce {
 public:
  static Result<std::unique_ptr<EndsByForce>> Start(int stop) {
    RDFS_ASSIGN_OR_RETURN(EventFd over, EventFd::Create());
    return std::unique_ptr<EndsByForce>(new EndsByForce(stop, std::move(over)));
  }
  EndsByForce(const EndsByForce&) = delete;
  EndsByForce& operator=(const EndsByForce&) = delete;
  ~EndsByForce() {
    over_.Ring();
    thread_.join();
  }

 private:
  static constexpr int kPatienceMs = 1000;

  EndsByForce(int stop, EventFd over) : stop_(stop), over_(std::move(over)) {
    thread_ = std::jthread([this] { Run(); });
  }
  void Run() const {
    std::array<pollfd, 2> entries{{{.fd = over_.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = stop_, .events = POLLIN, .revents = 0}}};
    while (poll(entries.data(), entries.size(), -1) < 0) {
      if (errno != EINTR) return;
    }
    if (entries[0].revents == 0 && poll(entries.data(), 1, kPatienceMs) == 0) _exit(0);
  }

  const int stop_;
  const EventFd over_;
  std::jthread thread_;  // last: it uses the rest
};

Result<std::unique_ptr<client::Mount>> Connect(const fuse::Options& options) {
  RDFS_ASSIGN_OR_RETURN(const transport::Key key, fuse::ReadKey(options));
  RDFS_ASSIGN_OR_RETURN(client::MountOptions mount, fuse::MakeMountOptions(options, key));
  mount.flags |= kMountReadOnly | kMountDropsNames;
  mount.lane_buffer_bytes = 1 << 20;  // no file is read
  return client::Mount::Create(std::move(mount), DeadlineAfter(options.deadline));
}

Status Watch(const Words& words, const std::vector<Place>& places, const fuse::Options& options,
             Output& output, int stop) {
  RDFS_ASSIGN_OR_RETURN(const std::unique_ptr<EndsByForce> force, EndsByForce::Start(stop));
  RDFS_ASSIGN_OR_RETURN(const std::unique_ptr<client::Mount> mount, Connect(options));
  const client::CallContext caller{
      .uid = geteuid(), .gid = getegid(), .pid = static_cast<std::uint32_t>(getpid())};
  RDFS_ASSIGN_OR_RETURN(const std::unique_ptr<Watcher> watcher,
                        Watcher::Create(*mount, caller, words.recursive, output, stop,
                                        DeadlineAfter(options.deadline)));
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::string shown = words.operands[i];
    while (shown.size() > 1 && shown.ends_with('/')) shown.pop_back();
    RDFS_RETURN_IF_ERROR(watcher->Add(places[i].path, std::move(shown)));
    if (watcher->IsTold()) return {};
  }
  if (!words.quiet) {
    Say("rdfs: watching {} director{}\n", watcher->directories(),
        watcher->directories() == 1 ? "y" : "ies");
  }
  watcher->Run();
  return {};
}

Status Watch(const Words& words) {
  std::vector<Place> places;
  for (const std::string& operand : words.operands) {
    RDFS_ASSIGN_OR_RETURN(Place place, FindPlace(operand));
    if (!places.empty() && place.source != places.front().source) {
      return {Code::kInvalidArgument,
              fmt::format("{} and {} are of different sources; watch them by two commands",
                          words.operands.front(), operand)};
    }
    places.push_back(std::move(place));
  }
  RDFS_ASSIGN_OR_RETURN(fuse::Options options,
                        fuse::ParseSourceAndOptions(places.front().source, places.front().options));
  for (const std::string& list : words.lists) {
    RDFS_RETURN_IF_ERROR(fuse::ApplyMountOptions(list, options));
  }
  RDFS_ASSIGN_OR_RETURN(const Fd stop, BlockEndSignals());
  // The reader has gone: nobody needs the rest.
  const auto gone = [] { (void)kill(getpid(), SIGTERM); };  // read from `stop`
  RDFS_ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Start(STDOUT_FILENO, gone));
  const Status watched = Watch(words, places, options, *output, stop.get());
  // The session has ended: nobody else waits while the last lines are read.
  const Status written = output->End(stop.get());
  return watched.ok() ? written : watched;
}

int Ended(const Status& status) {
  if (status.ok()) return 0;
  Say("rdfs: {}\n", status.message());
  return fuse::kExitFailure;
}

}  // namespace

int RunWatch(const std::vector<std::string>& arguments) {
  Words words;
  CLI::App app{"Prints what happens in directories of an export, as inotifywait -m does"};
  app.name("rdfs watch");
  app.footer(kFooter);
  app.set_help_flag("-h,--help", "Print this and exit");
  app.set_version_flag("--version", "rdfs " RDFS_VERSION, "Print the version and exit");
  app.add_flag("-v", words.verbosity, "Say more; again even more");
  app.add_option("PATH", words.operands, "What to watch (see below)")->required();
  app.add_option("-o", words.lists,
                 "Options of the session, as for a mount; those of PATH's mount "
                 "need not be repeated")
      ->expected(1)
      ->take_all()
      ->type_name("OPTION,...");
  app.add_flag("-r,--recursive", words.recursive, "What is below, too");
  app.add_flag("-q,--quiet", words.quiet, "Do not say when it begins");
  std::vector<const char*> argv{"rdfs watch"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  try {
    ParseWords(app, static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::CallForHelp&) {
    Tell("{}", app.help());
    return Ended(Told());
  } catch (const CLI::CallForVersion& version) {
    Tell("{}\n", version.what());
    return Ended(Told());
  } catch (const CLI::ParseError& error) {
    Say("rdfs: {}; see rdfs watch --help\n", error.what());
    return fuse::kExitUsage;
  }
  fuse::Options tried;  // the words alone, which are applied where PATH's own are known
  for (const std::string& list : words.lists) {
    const Status applied = fuse::ApplyMountOptions(list, tried);
    if (applied.ok()) continue;
    Say("rdfs: {}\n", applied.message());
    return fuse::kExitUsage;
  }
  SetLogName("rdfs");
  SetLogLevel(words.verbosity == 0   ? LogLevel::kWarn
              : words.verbosity == 1 ? LogLevel::kInfo
                                     : LogLevel::kDebug);
  return Ended(Watch(words));
}

std::string SessionAnswer(const std::string& source, const std::string& options) {
  return source + '\n' + options + '\n';
}

}  // namespace rdfs::fs::watch
