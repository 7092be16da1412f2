// A peer in a process of its own: this program again, so that it can be stopped and killed and
// shares nothing with the test. Test and peer talk in lines over a socket pair.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "tests/transport/conformance/suite.h"
#include "transport/base/fd.h"

namespace rdfs::transport::conformance {

// One end of the lines between a test and its peer.
class Control {
 public:
  explicit Control(Fd fd) : fd_(std::move(fd)) {}
  void Say(std::string_view line) const;
  // The next line; empty when the other process has ended or nothing came within kPatience.
  std::string Hear();
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  std::string heard_;
};

// The test's handle of its peer, which is killed and reaped at the latest by the destructor.
class PeerProcess {
 public:
  // Starts this program as `role` (RunPeer) for `subject`.
  PeerProcess(const Subject& subject, const std::string& role);
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  ~PeerProcess();

  Control& control() { return control_; }
  // SIGKILL, and waits for the end.
  void Kill();
  // SIGSTOP, and waits until the process has stopped.
  void Stop();
  void Continue();
  // Waits for the peer's own end; its exit status, or -1.
  int Wait();

 private:
  Control control_;
  pid_t pid_ = -1;
};

// The peer's side of Main. "serve": listens, says its endpoint, accepts one peer and obeys the
// messages below until the connection is over, then says so. "dial": hears an endpoint, connects,
// and does the same. Returns the exit status.
int RunPeer(const Subject& subject, const std::string& role, Control control);

// The peer's first message: its readable region, then its writable one, as RemoteRegionWire. Each
// is kPeerRegionBytes long and holds Pattern(kPeerRegionBytes, kPeerSeed) at first.
inline constexpr std::size_t kPeerRegionBytes = 1 << 20;
inline constexpr std::uint64_t kPeerSeed = 77;
// Messages to the peer begin with one of these.
inline constexpr char kEcho = 'e';   // answers with the same message
inline constexpr char kCheck = 'c';  // then a Le64 seed: answers "same" when the writable region
                                     // holds Pattern(kPeerRegionBytes, seed), else "differs"
inline constexpr char kQuit = 'q';   // destroys the connection

}  // namespace rdfs::transport::conformance
