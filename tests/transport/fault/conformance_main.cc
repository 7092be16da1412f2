// The suite holds under every fault that a caller has to live with. Over verbs:
// ../verbs/conformance_main.cc.
#include <unistd.h>

#include <string>

#include "tests/transport/conformance/suite.h"
#include "tests/transport/fault/bearable.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"

int main(int argc, char** argv) {
  using namespace rdfs::transport;
  const std::string name = "rdfs-fault-conformance-" + std::to_string(getpid());
  return conformance::Main(
      argc, argv,
      {{.name = "ShmWithFaults",
        .make = [] { return fault::Wrap(shm::MakeTransport(), fault::kBearable); },
        .listen = {.kind = Kind::kShm, .host = name, .port = 0},
        .injects_busy = true},
       {.name = "TcpWithFaults",
        .make = [] { return fault::Wrap(tcp::MakeTransport(), fault::kBearable); },
        .listen = {.kind = Kind::kTcp, .host = "127.0.0.1", .port = 0},
        .injects_busy = true}});
}
