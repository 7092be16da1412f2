// rdsend: standard input or a file to rdrecv on another machine, or on several.

#include "tools/pipe/command/options.h"
#include "tools/pipe/command/process.h"
#include "tools/pipe/send/delivery.h"
#include "transport/base/say.h"

namespace {

using rdfs::BootClock;
using rdfs::Fd;
using rdfs::Status;
using namespace rdfs::pipe;  // NOLINT: this is its program

constexpr const char* kName = "rdsend";

void Tell(const Delivery& delivery, const Progress& progress) {
  if (delivery.begin > 0) {
    rdfs::Say("{}: the receiver had the first {} bytes\n", kName, delivery.begin);
  }
  rdfs::Say("{}: {} over {}\n", kName, progress.Summary(delivery.bytes, BootClock::now()),
            delivery.how);
}

// The exit status: 0 when all have it.
int Send(const SendOptions& options) {
  StopFlag stop{false};
  auto source = Source::Open(options.file, stop);
  auto interrupts = WatchInterrupts();
  if (!interrupts.ok()) return Report(kName, interrupts.status());
  Progress progress(ShowsProgress(options, STDIN_FILENO), kName, BootClock::now());
  // Nothing is lost by who is stopped while it waits for a receiver.
  const Delivery delivery = Deliver(options, std::move(source), stop, interrupts->get(), progress,
                                    [](const std::string&) { BlockInterrupts(); });
  if (options.verbosity > 0 && !delivery.how.empty()) Tell(delivery, progress);
  for (const FailedHop& hop : delivery.failed) {
    (void)Report(kName, Status(hop.why.code(), hop.name + ": " + hop.why.message()));
  }
  if (delivery.failed.empty() && !delivery.status.ok()) return Report(kName, delivery.status);
  return delivery.failed.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  SendOptions options;
  if (const auto exit = ParseSend(argc, argv, options)) return exit->code;
  SetUpProcess(kName, options);
  return Send(options);
}
