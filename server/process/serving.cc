#include "server/process/serving.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "server/command/setup.h"
#include "server/process/reload_thread.h"
#include "server/process/signal_thread.h"
#include "server/service.h"
#include "transport/base/control_socket.h"
#include "transport/base/log.h"
#include "transport/base/runtime_directory.h"
#include "transport/base/snapshot.h"
#include "transport/metrics/server.h"
#include "transport/session/acceptor.h"

namespace rdfs::server {
namespace {

int Fail(const Status& status) {
  LogError("{}", status.message());
  return 1;
}

std::string RecordDirectory() {
  auto directory = MakeRuntimeDirectory();
  if (directory.ok()) return *std::move(directory);
  LogWarn("requests that are sent twice may be carried out twice: {}",
          directory.status().message());
  return {};
}

void Announce(const ServingParams& params, std::uint16_t port, Readiness& readiness) {
  std::string text = fmt::format("rdfsd: ready on port {}", port);
  for (const ExportSpec& spec : params.options.exports) {
    text +=
        "\nrdfsd: mount with: " + MountCommand(params.options, spec.name, port, params.key_path);
  }
  readiness.Ready(text);
}

// SIGHUP. What is wrong with the new exports leaves the old ones as they are.
void Reload(const ServingParams& params, Service& service, SharedState& shared) {
  auto specs = params.read_exports();
  const Status status = specs.ok() ? service.Reload(*specs) : specs.status();
  if (!status.ok()) {
    LogWarn("the exports stay as they were: {}", status.message());
    return;
  }
  shared.reloaded = true;
  LogLine(LogLevel::kInfo, fmt::format("read again: {} exports", specs->size()));
}

// Those of the start, or after a reload those that a worker of before had read.
std::vector<ExportSpec> CurrentExports(const ServingParams& params, const SharedState& shared) {
  if (!shared.reloaded) return params.options.exports;
  auto specs = params.read_exports();
  if (specs.ok()) return *std::move(specs);
  LogWarn("the exports are those of the start: {}", specs.status().message());
  return params.options.exports;
}

Snapshot Describe(Service& service, std::uint16_t port) {
  Snapshot snapshot = service.Describe();
  snapshot.words = {{"port", std::to_string(port)}, {"process", std::to_string(::getpid())}};
  snapshot.info = {{"version", RDFS_VERSION}};
  return snapshot;
}

// Where the command line or the configuration file wants it; null elsewhere. A worker that was
// started again listens where the first one did, and serves all the same where it cannot.
Result<std::unique_ptr<metrics::Server>> ServeMetrics(const ServingParams& params, Service& service,
                                                      std::uint16_t port, SharedState& shared) {
  if (!params.options.metrics) return std::unique_ptr<metrics::Server>();
  metrics::Address address = *params.options.metrics;
  if (shared.metrics_port != 0) address.port = shared.metrics_port;
  auto server = metrics::Server::Listen(
      address, [&service, port] { return ToPrometheus(Describe(service, port)); });
  if (server.ok()) {
    shared.metrics_port = (*server)->address().port;
  } else if (shared.announced) {
    LogWarn("{}", server.status().message());
    return std::unique_ptr<metrics::Server>();
  }
  return server;
}

}  // namespace

std::unique_ptr<ControlSocket> ListenForQuestions(Service& service, std::uint16_t port,
                                                  const metrics::Server* metrics) {
  const auto rates = std::make_shared<Rates>(BootClock::now());
  auto control =
      ControlSocket::Listen("rdfsd", [&service, port, metrics, rates](std::string_view request) {
        Snapshot snapshot = Describe(service, port);
        if (metrics) snapshot.words.emplace_back("metrics", ToString(metrics->address()));
        if (TellsRates(request)) {
          snapshot.rates = rates->Look(BootClock::now(), service.core().counters.Totals());
        }
        return AnswerRequest(request, snapshot);
      });
  if (control.ok()) return *std::move(control);
  LogWarn("`rdfsd status` cannot ask this server: {}", control.status().message());
  return nullptr;
}

transport::AcceptorOptions ToAcceptor(const ServingParams& params, std::uint16_t port) {
  const Options& options = params.options;
  transport::AcceptorOptions out;
  out.addresses = options.listen;
  if (options.no_auth && options.listen.empty()) out.addresses = LoopbackAddresses();
  out.port = port;
  out.verbs_port = options.rdma_port.value_or(0);
  out.no_auth = options.no_auth;
  out.wrong_keys = options.limits.wrong_keys;
  out.allow_plaintext = !options.require_encryption;
  if (options.no_rdma || options.require_encryption) {
    std::erase(out.offer, transport::Kind::kVerbs);
  }
  out.peers_share = false;  // clients read and write our memory, never we theirs
  if (!options.no_auth) out.keys.push_back({"default", params.key});
  return out;
}

SharedState& MakeSharedState() {
  void* page = ::mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    LogError("no memory left");
    std::abort();
  }
  return *new (page) SharedState();  // for the life of the process
}

int Serve(const ServingParams& params, DescriptorKeeper& keeper, SharedState& shared,
          Readiness& readiness) {
  SignalThread::Block();
  ServiceOptions service_options;
  service_options.exports = CurrentExports(params, shared);
  // The others need not go because the directory of one has gone since the start.
  service_options.some_will_do = shared.announced;
  service_options.secret = params.secret;
  service_options.pool_bytes = params.options.pool_bytes.value_or(0);
  service_options.record_directory = RecordDirectory();
  service_options.limits = params.options.limits;
  service_options.session_lease = std::chrono::seconds(params.options.lease_seconds);
  auto service = Service::Create(std::move(service_options), keeper);
  if (!service.ok()) return Fail(service.status());

  const std::uint16_t port =
      shared.port != 0 ? shared.port.load() : params.options.port.value_or(transport::kDefaultPort);
  auto acceptor = transport::Acceptor::Create(ToAcceptor(params, port), **service);
  if (!acceptor.ok()) return Fail(acceptor.status());
  shared.port = (*acceptor)->port();

  Service& serving = **service;
  Core& core = serving.core();
  ReloadThread reloading([&params, &serving, &shared] { Reload(params, serving, shared); },
                         [&] {
                           // A directory hangs, and what the thread uses stays for it until the
                           // process ends.
                           serving.Stop();
                           (void)service->release();
                         });
  auto signals = SignalThread::Start(
      [&] {
        serving.TakeWrites();
        (*acceptor)->Stop();
      },
      [&core] { LogLine(LogLevel::kInfo, core.counters.ToString() + core.leases.Describe()); },
      [&reloading] { reloading.Ask(); });
  if (!signals.ok()) return Fail(signals.status());
  const auto metrics = ServeMetrics(params, **service, (*acceptor)->port(), shared);
  if (!metrics.ok()) return Fail(metrics.status());
  const auto control = ListenForQuestions(**service, (*acceptor)->port(), metrics->get());
  if (!shared.announced.exchange(true)) {
    Announce(params, (*acceptor)->port(), readiness);
  } else {
    LogWarn("the worker was started again on port {}", (*acceptor)->port());
  }
  const Status ended = (*acceptor)->Run();
  LogInfo("{}{}", core.counters.ToString(), core.leases.Describe());
  return ended.ok() ? 0 : Fail(ended);
}

}  // namespace rdfs::server
