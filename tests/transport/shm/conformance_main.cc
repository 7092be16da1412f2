#include <unistd.h>

#include <string>

#include "tests/transport/conformance/suite.h"
#include "transport/shm/transport.h"

int main(int argc, char** argv) {
  using namespace rdfs::transport;
  const std::string name = "rdfs-conformance-" + std::to_string(getpid());
  return conformance::Main(argc, argv,
                           {{.name = "Shm",
                             .make = [] { return shm::MakeTransport(); },
                             .listen = {.kind = Kind::kShm, .host = name, .port = 0}}});
}
