#include "tests/transport/conformance/suite.h"
#include "transport/tcp/transport.h"

int main(int argc, char** argv) {
  using namespace rdfs::transport;
  return conformance::Main(argc, argv,
                           {{.name = "Tcp",
                             .make = tcp::MakeTransport,
                             .listen = {.kind = Kind::kTcp, .host = "127.0.0.1", .port = 0}},
                            {.name = "Tcp6",
                             .make = tcp::MakeTransport,
                             .listen = {.kind = Kind::kTcp, .host = "::1", .port = 0}}});
}
