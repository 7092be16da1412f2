// rdrecv: what rdsend sends, to standard output or a file.

#include "tools/pipe/command/options.h"
#include "tools/pipe/command/process.h"
#include "tools/pipe/receive/reception.h"
#include "transport/base/say.h"

namespace {

using rdfs::Fd;
using rdfs::Status;
using namespace rdfs::pipe;  // NOLINT: this is its program

constexpr const char* kName = "rdrecv";

Status Receive(const ReceiveOptions& options) {
  // Before the acceptor's thread is there, which is not to take them.
  RDFS_ASSIGN_OR_RETURN(const Fd interrupts, TakeInterrupts());
  RDFS_ASSIGN_OR_RETURN(const auto reception, Reception::Create(options));
  if (options.verbosity > 0 || options.port == 0) {
    rdfs::Say("{}: listening on port {}\n", kName, reception->port());
  }
  Arrival arrival = reception->Run(interrupts.get(), ShowsProgress(options, STDOUT_FILENO));
  if (options.verbosity > 0 && !arrival.how.empty()) {
    if (arrival.begin > 0) {
      rdfs::Say("{}: went on behind {} bytes\n", kName, arrival.begin);
    }
    rdfs::Say("{}: {} over {}\n", kName, arrival.summary, arrival.how);
  }
  return std::move(arrival.status);
}

}  // namespace

int main(int argc, char** argv) {
  ReceiveOptions options;
  if (const auto exit = ParseReceive(argc, argv, options)) return exit->code;
  SetUpProcess(kName, options);
  const Status status = Receive(options);
  return status.ok() ? 0 : Report(kName, status);
}
