// The conformance suite over verbs, on a real RDMA stack: RDFS_RDMA_ADDRESS names an address of the
// device, and RDFS_RDMA_ADDRESS6 its IPv6 address where it has one. tests/rdma/run sets them.
#include <cstdio>
#include <cstdlib>

#include "tests/transport/conformance/suite.h"
#include "transport/verbs/transport.h"

int main(int argc, char** argv) {
  using namespace rdfs::transport;
  const char* address = std::getenv("RDFS_RDMA_ADDRESS");
  const char* address6 = std::getenv("RDFS_RDMA_ADDRESS6");
  if (address == nullptr) {
    (void)std::fputs("RDFS_RDMA_ADDRESS is not set: run this through tests/rdma/run\n", stderr);
    return 2;
  }
  std::vector<conformance::Subject> subjects{
      {.name = "Verbs",
       .make = verbs::MakeTransport,
       .listen = {.kind = Kind::kVerbs, .host = address, .port = 0}}};
  if (address6 != nullptr) {
    subjects.push_back({.name = "Verbs6",
                        .make = verbs::MakeTransport,
                        .listen = {.kind = Kind::kVerbs, .host = address6, .port = 0}});
  }
  return conformance::Main(argc, argv, std::move(subjects));
}
