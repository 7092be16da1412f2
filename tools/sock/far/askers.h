// The ends of this host's programs that have come to the carrier and wait for their channel, and
// the processes for whose sake it stays. ask.h has the packets.
//
// Owned by the carrier, on its thread; never sleeps. Bounded: kMost at once, each for kAskTimeout.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "tools/sock/far/ask.h"
#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::sock::far {

// Less than the asker waits: it is told why.
inline constexpr std::chrono::milliseconds kPatience{1500};

struct Asker {
  Fd socket;
  std::optional<Ask> ask;  // none: has not said anything yet
  std::uint64_t look = 0;  // at the pairings, which it waits for (PairsFile); 0: for none
  std::string pair;        // where the other end is
  bool told = false;       // over there
  Deadline until;
};

class Askers {
 public:
  static constexpr std::size_t kMost = 1024;

  // Binds the name. Errors: kBusy when it is taken, kErrno.
  static Result<Askers> Listen(const std::string& name);

  [[nodiscard]] int fd() const { return listener_.get(); }
  // The next one, if there is one, in `asker`. A stranger, who is another user's, was shown out; no
  // room: of descriptors.
  enum class Came : std::uint8_t { kNobody, kNoRoom, kStranger, kAsker };
  Came Accept(TimePoint now, Asker*& asker);
  // What it says. False: it has gone, or talks nonsense, or said Hold: forget it.
  bool Hear(Asker& asker);
  // The one who waits at this end of a connection, or null.
  Asker* Find(const TcpPlaces& places);
  std::list<Asker>& all() { return askers_; }
  void Forget(const Asker& asker);

  // A process that said Hold: readable when it has ended.
  [[nodiscard]] const std::vector<Fd>& holds() const { return holds_; }
  void DropHold(int fd);

 private:
  explicit Askers(Fd listener) : listener_(std::move(listener)) {}
  void Hold(int socket);

  Fd listener_;
  std::list<Asker> askers_;
  std::vector<Fd> holds_;
};

// Answers, and is done with it.
void Refuse(const Fd& socket, Refusal reason);

}  // namespace rdfs::sock::far
