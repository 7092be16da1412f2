// The conformance suite: one set of tests that every transport passes, bare and under faults.
//
// A transport's test program is a main of a few lines that names its subjects and calls Main. Link
// the object library rdfs_conformance and the transport:
//
//   int main(int argc, char** argv) {
//     using namespace rdfs::transport;
//     return conformance::Main(argc, argv, {{.name = "Tcp",
//                                            .make = tcp::MakeTransport,
//                                            .listen = {Kind::kTcp, "127.0.0.1", 0}}});
//   }
//
// Some tests need a peer process to stop or to kill: Main starts this very program again as that
// peer, so that it shares nothing with the test. The peer's main must name the same subjects.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace rdfs::transport::conformance {

struct Subject {
  std::string name;                                  // letters and digits; part of the tests' names
  std::function<std::unique_ptr<Transport>()> make;  // called often, in the test and in its peers
  Endpoint listen;            // where listeners go: port 0; for shm a name that holds the pid
  bool injects_busy = false;  // Read and Write may answer kBusy before the bound (fault/)
  // Soft-iWARP's driver answers a READ of any region of the domain, shared for reading or not.
  bool refuses_reads_by_access = true;
};

// Runs the tests (or, in a process that a test started, its peer). Returns main's exit status.
int Main(int argc, char** argv, std::vector<Subject> subjects);

}  // namespace rdfs::transport::conformance
