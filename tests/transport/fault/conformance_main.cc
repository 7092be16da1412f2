// The suite holds under every fault that a caller has to live with: completions and messages that
// come late, and posts that are to be tried again.
#include <unistd.h>

#include <string>

#include "tests/transport/conformance/suite.h"
#include "transport/fault/transport.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"

namespace {

constexpr rdfs::transport::fault::Plan kPlan{
    .seed = 20261120, .delay_completion = 2'000, .delay_polls = 5, .busy = 1'500};

}  // namespace

int main(int argc, char** argv) {
  using namespace rdfs::transport;
  const std::string name = "rdfs-fault-conformance-" + std::to_string(getpid());
  return conformance::Main(argc, argv,
                           {{.name = "ShmWithFaults",
                             .make = [] { return fault::Wrap(shm::MakeTransport(), kPlan); },
                             .listen = {.kind = Kind::kShm, .host = name, .port = 0},
                             .injects_busy = true},
                            {.name = "TcpWithFaults",
                             .make = [] { return fault::Wrap(tcp::MakeTransport(), kPlan); },
                             .listen = {.kind = Kind::kTcp, .host = "127.0.0.1", .port = 0},
                             .injects_busy = true}});
}
