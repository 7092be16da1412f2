// The carrier: the process that, for one user on one host, takes the bytes of connections between
// their channels here and the carriers of paired hosts. PROTOCOL.md, "Between hosts".
//
// It listens at CarrierName() for the ends of this host's programs (ask.h), and on a TCP and an
// RDMA port for other carriers, who prove a pairing's key before anything is told. One lane to a
// paired host carries all connections with it; their rings are written to by one-sided WRITEs.
// What cannot go on (a lane, a peer that says what cannot be) ends with the bells of every
// connection on it closed.
//
// One thread runs Run(); one more answers other carriers until their lane stands, one (or a few,
// where hosts do not answer) dials, and one looks at the pairings. Sleeps when nothing moves.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tools/sock/far/pairs.h"
#include "transport/base/status.h"

namespace rdfs::sock::far {

struct CarrierOptions {
  std::string name;   // of the UNIX socket; empty: CarrierName(geteuid())
  std::string pairs;  // the pairings' file; it is read again when it has changed
  // With nothing to carry and none of those who sent Hold alive, for so long: Run ends.
  std::chrono::seconds idle{60};
  // How to see that the file has changed; may block. Other ones are for tests.
  std::function<std::string(const std::string& path)> stamp = StampOf;
};

class Carrier {
 public:
  virtual ~Carrier() = default;
  // Errors: kBusy when the name is taken (another carrier runs: nothing is wrong), those of
  // ReadPairs, of the port.
  static Result<std::unique_ptr<Carrier>> Create(CarrierOptions options);

  // Until Stop, or until nothing has been to carry for a while. Blocks.
  virtual Status Run() = 0;
  // Any thread, and signal handlers.
  virtual void Stop() = 0;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
};

// `rdsock --carrier`: runs one in this process, which becomes nobody's child, until it ends by
// itself or by SIGTERM. The process's exit status; says why on standard error.
int CarrierMain();
// Where there are pairings: sees to it that a carrier of this user's runs, and sends it Hold.
// Starts /proc/self/exe with --carrier if there is none. Blocks until it listens, at most a second.
// Errors are for --stats: without a carrier connections stay on TCP.
Status EnsureCarrier();

}  // namespace rdfs::sock::far
