// `rdfsd --stdio`: what ssh starts.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "fs/protocol.h"
#include "server/intent_ring.h"
#include "server/service.h"
#include "server/serving.h"
#include "server/setup.h"
#include "server/signal_thread.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"
#include "transport/session/acceptor.h"
#include "transport/tcp/stream.h"

namespace rdfs::server {
namespace {

// ssh has asked for its passwords before it starts us: the line comes at once or not at all.
constexpr std::chrono::seconds kBootstrapPatience{30};
// A client that has its answer but never mounts.
constexpr std::chrono::seconds kMountPatience{60};

// One line of standard input and nothing behind it.
Result<std::string> ReadBootstrapLine() {
  const Deadline deadline = DeadlineAfter(kBootstrapPatience);
  std::string line;
  line.reserve(fs::kMaxBootstrapLineBytes);  // so that the key is not left behind by growing
  while (line.size() < fs::kMaxBootstrapLineBytes) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&input, 1, PollTimeoutMs(deadline, BootClock::now()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    char c = 0;
    const ssize_t got = ::read(STDIN_FILENO, &c, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got != 1) break;
    if (c == '\n') return line;
    line += c;
  }
  sodium_memzero(line.data(), line.size());
  return Status(Code::kProtocolError,
                "--stdio is for rdfs, which starts it over ssh; to serve directories by hand, use "
                "--export NAME=DIR");
}

struct Bootstrap {
  transport::Key key;
  std::string directory;
};

Result<Bootstrap> ReadBootstrap() {
  RDFS_ASSIGN_OR_RETURN(std::string line, ReadBootstrapLine());
  Bootstrap bootstrap;
  const auto request = fs::ParseBootstrapRequest(line);
  if (request.ok()) {
    bootstrap.key = transport::Key(request->key);
    bootstrap.directory = request->directory;
  }
  sodium_memzero(line.data(), line.size());
  if (!request.ok()) return request.status();
  return bootstrap;
}

// Standard input and output become the stream; nothing else writes to them by mistake.
std::unique_ptr<transport::tcp::ByteStream> TakeStdio() {
  Fd in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  Fd out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null.valid()) {
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(null.get(), STDOUT_FILENO);
  }
  return transport::tcp::MakePipeStream(std::move(in), std::move(out), "ssh");
}

void Answer(const Status& outcome) {
  const std::string line = fs::EncodeBootstrapReply(outcome);
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) LogDebug("ssh is gone");
}

Result<std::unique_ptr<transport::Acceptor>> MakeAcceptor(const transport::Key& key,
                                                          Service& service) {
  transport::AcceptorOptions options;
  options.port = 0;
  options.keys.push_back({"ssh", key});
  options.same_user_only = true;
  auto acceptor = transport::Acceptor::Create(options, service);
  if (acceptor.ok()) return acceptor;
  // No network to listen on: the stream alone will do.
  LogInfo("cannot listen: {}", acceptor.status().message());
  options.listen_tcp = false;
  return transport::Acceptor::Create(options, service);
}

int Refuse(const Status& status) {
  Answer(status);
  // The other end tells its user; a person who typed this sees no answer worth reading.
  if (::isatty(STDIN_FILENO) != 0) LogError("{}", status.message());
  return 1;
}

}  // namespace

int ServeStdio(const Options& options) {
  SignalThread::Block();
  auto bootstrap = ReadBootstrap();
  if (!bootstrap.ok()) return Refuse(bootstrap.status());
  // It outlives its ssh: a loss of the connection is not the end of the mount.
  ::setsid();
  const auto keeper = DescriptorKeeper::None();
  ServiceOptions service_options;
  ExportSpec spec;
  spec.name = fs::kBootstrapExport;
  spec.directory = bootstrap->directory;
  spec.id_mode = IdMode::kAsMe;
  spec.id_mode_given = true;
  service_options.exports.push_back(spec);
  service_options.secret = SetUpHandleSecret();
  service_options.pool_bytes = options.pool_bytes;
  service_options.session_lease = std::chrono::seconds(options.lease_seconds);
  if (auto records = IntentRing::DefaultDirectory(); records.ok()) {
    service_options.record_directory = *std::move(records);
  }
  // As if we were asked to: the one way to end, whichever thread says so.
  service_options.on_idle = [] { ::kill(::getpid(), SIGTERM); };
  auto service = Service::Create(std::move(service_options), *keeper);
  if (!service.ok()) return Refuse(service.status());
  auto acceptor = MakeAcceptor(bootstrap->key, **service);
  if (!acceptor.ok()) return Refuse(acceptor.status());
  transport::Acceptor& running = **acceptor;
  auto signals = SignalThread::Start([&running] { running.Stop(); }, [&service] {
    LogLine(LogLevel::kInfo, (*service)->core().counters.ToString());
  });
  if (!signals.ok()) return Refuse(signals.status());
  (*service)->EndIfUnusedAfter(kMountPatience);
  Answer(Status::Ok());
  running.Serve(TakeStdio());
  const Status ended = running.Run();
  LogInfo("{}", (*service)->core().counters.ToString());
  return ended.ok() ? 0 : 1;
}

}  // namespace rdfs::server
