// The conformance suite over verbs, bare and with faults, on a real RDMA stack: RDFS_RDMA_ADDRESS
// names an address of the device, and RDFS_RDMA_ADDRESS6 its IPv6 address, or nothing where it has
// none. tests/rdma/run sets them.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/transport/conformance/suite.h"
#include "tests/transport/fault/bearable.h"
#include "transport/verbs/transport.h"

int main(int argc, char** argv) {
  using namespace rdfs::transport;
  const char* address = std::getenv("RDFS_RDMA_ADDRESS");
  const char* address6 = std::getenv("RDFS_RDMA_ADDRESS6");
  if (address == nullptr) {
    (void)std::fputs("RDFS_RDMA_ADDRESS is not set: run this through tests/rdma/run\n", stderr);
    return 2;
  }
  const char* driver = std::getenv("RDFS_RDMA_DRIVER");
  const bool siw = driver != nullptr && std::string_view(driver) == "siw";
  const auto subject = [siw](const char* name, const char* host) {
    return conformance::Subject{.name = name,
                                .make = verbs::MakeTransport,
                                .listen = {.kind = Kind::kVerbs, .host = host, .port = 0},
                                .injects_busy = false,
                                .refuses_reads_by_access = !siw};
  };
  std::vector<conformance::Subject> subjects{subject("Verbs", address)};
  if (address6 != nullptr && *address6 != '\0') subjects.push_back(subject("Verbs6", address6));
  conformance::Subject faulty = subject("VerbsWithFaults", address);
  faulty.make = [] { return fault::Wrap(verbs::MakeTransport(), fault::kBearable); };
  faulty.injects_busy = true;
  subjects.push_back(std::move(faulty));
  return conformance::Main(argc, argv, std::move(subjects));
}
