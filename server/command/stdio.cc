// `rdfsd --stdio`: what ssh starts.
#include "transport/ssh/stdio.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string_view>

#include "fs/protocol.h"
#include "server/command/setup.h"
#include "server/process/confine.h"
#include "server/process/serving.h"
#include "server/process/signal_thread.h"
#include "server/service.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"
#include "transport/base/runtime_directory.h"
#include "transport/session/acceptor.h"

namespace rdfs::server {
namespace {

namespace ssh = transport::ssh;

// ssh has asked for its passwords before it starts us: the line comes at once or not at all.
constexpr std::chrono::seconds kBootstrapPatience{30};
// A client that has its answer but never mounts.
constexpr std::chrono::seconds kMountPatience{60};
constexpr std::string_view kTypedByHand =
    "--stdio is for rdfs, which starts it over ssh; to serve directories by hand, use --export "
    "NAME=DIR";

Result<std::unique_ptr<transport::Acceptor>> MakeAcceptor(const transport::Key& key,
                                                          Service& service) {
  transport::AcceptorOptions options;
  options.port = 0;
  options.keys.push_back({"ssh", key});
  options.same_user_only = true;
  options.peers_share = false;
  auto acceptor = transport::Acceptor::Create(options, service);
  if (acceptor.ok()) return acceptor;
  // No network to listen on: the stream alone will do.
  LogInfo("cannot listen: {}", acceptor.status().message());
  options.listen_tcp = false;
  return transport::Acceptor::Create(options, service);
}

int Refuse(const Status& status) {
  ssh::Answer(fs::kBootstrapMagic, status);
  // The other end tells its user; a person who typed this sees no answer worth reading.
  if (::isatty(STDIN_FILENO) != 0) LogError("{}", status.message());
  return 1;
}

}  // namespace

int ServeStdio(const Options& options) {
  SignalThread::Block();
  auto bootstrap =
      ssh::ReadBootstrap(fs::kBootstrapMagic, kTypedByHand, DeadlineAfter(kBootstrapPatience));
  if (!bootstrap.ok()) return Refuse(bootstrap.status());
  if (const Status confined = Confine(); !confined.ok()) return Refuse(confined);
  // It outlives its ssh: a loss of the connection is not the end of the mount.
  ::setsid();
  const auto keeper = DescriptorKeeper::None();
  ServiceOptions service_options;
  ExportSpec spec;
  spec.name = fs::kBootstrapExport;
  spec.directory = bootstrap->text;
  spec.id_mode = IdMode::kAsMe;
  spec.id_mode_given = true;
  service_options.exports.push_back(spec);
  service_options.secret = SetUpHandleSecret();
  service_options.pool_bytes = options.pool_bytes.value_or(0);
  service_options.session_lease = std::chrono::seconds(options.lease_seconds);
  if (auto records = MakeRuntimeDirectory(); records.ok()) {
    service_options.record_directory = *std::move(records);
  }
  // As if we were asked to: the one way to end, whichever thread says so.
  service_options.on_idle = [] { ::kill(::getpid(), SIGTERM); };
  auto service = Service::Create(std::move(service_options), *keeper);
  if (!service.ok()) return Refuse(service.status());
  auto acceptor = MakeAcceptor(bootstrap->key, **service);
  if (!acceptor.ok()) return Refuse(acceptor.status());
  transport::Acceptor& running = **acceptor;
  auto signals = SignalThread::Start(
      [&] {
        (*service)->TakeWrites();
        running.Stop();
      },
      [&service] { LogLine(LogLevel::kInfo, (*service)->core().counters.ToString()); });
  if (!signals.ok()) return Refuse(signals.status());
  const auto control = ListenForQuestions(**service, running.port(), nullptr);
  (*service)->EndIfUnusedAfter(kMountPatience);
  ssh::Answer(fs::kBootstrapMagic, Status::Ok());
  running.Serve(ssh::TakeStdio());
  const Status ended = running.Run();
  LogInfo("{}", (*service)->core().counters.ToString());
  return ended.ok() ? 0 : 1;
}

}  // namespace rdfs::server
