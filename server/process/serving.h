// Serving: rdfsd's worker process, from its service and acceptor to its last signal.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/command/daemon.h"
#include "server/command/options.h"
#include "server/inode/handle.h"
#include "server/supervisor/supervisor_keeper.h"
#include "transport/base/control_socket.h"
#include "transport/session/key.h"

namespace rdfs::metrics {
class Server;
}

namespace rdfs::transport {
struct AcceptorOptions;
}

namespace rdfs::server {

class Service;

// What outlives a worker, in memory that it shares with its supervisor: a worker that is started
// again listens where the first one did.
struct SharedState {
  std::atomic<std::uint16_t> port{0};
  std::atomic<std::uint16_t> metrics_port{0};
  std::atomic<bool> announced{false};
  std::atomic<bool> reloaded{false};  // the exports are other ones than at the start
};
// Never fails but by ending the process: a page of memory.
SharedState& MakeSharedState();

struct ServingParams {
  Options options;
  transport::Key key;
  std::string key_path;
  HandleSecret secret;
  // What the configuration file and the command line say of the exports now.
  std::function<Result<std::vector<ExportSpec>>()> read_exports;
};

// `rdfsd status` and the like may ask; null, and the server as good, where that cannot be. Both
// outlive it; `metrics` may be null.
std::unique_ptr<ControlSocket> ListenForQuestions(Service& service, std::uint16_t port,
                                                  const metrics::Server* metrics);

// Where and how it listens, at this port.
transport::AcceptorOptions ToAcceptor(const ServingParams& params, std::uint16_t port);

// Serves until SIGTERM or SIGINT; the exit code, with which the process ends at once: a thread that
// hangs in a directory may still use `params` and `shared`.
int Serve(const ServingParams& params, DescriptorKeeper& keeper, SharedState& shared,
          Readiness& readiness);
// Serves the client at standard input and output (fs/protocol.h, bootstrap) and whoever of its
// lanes comes by another way, until its session is over for good. The exit code.
int ServeStdio(const Options& options);

}  // namespace rdfs::server
