#include "tests/transport/conformance/suite.h"
#include "tests/transport/tcp/tls_transport.h"
#include "transport/tcp/transport.h"

int main(int argc, char** argv) {
  using namespace rdfs::transport;
  const Endpoint loopback{.kind = Kind::kTcp, .host = "127.0.0.1", .port = 0};
  const Endpoint loopback6{.kind = Kind::kTcp, .host = "::1", .port = 0};
  return conformance::Main(
      argc, argv,
      {{.name = "Tcp", .make = tcp::MakeTransport, .listen = loopback},
       {.name = "Tcp6", .make = tcp::MakeTransport, .listen = loopback6},
       {.name = "TcpWithTls", .make = tcp::MakeTlsTransport, .listen = loopback}});
}
