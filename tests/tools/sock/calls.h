// The calls that programs make on a TCP connection, as scenarios of two ends: each says what every
// call returned, so that what an end says with librdsock.so can be compared with what it says
// without. Nothing that differs between two runs over TCP is said.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

namespace rdfs::sock {

// One end of a connection in one scenario, in its own process.
class Party {
 public:
  // `beside`: a UNIX socket to the other end's process, which no library concerns itself with.
  Party(int tcp, int beside) : fd(tcp), beside_(beside) {}

  int fd;  // the connection; a scenario may close it and says so with -1

  // Both ends have come here: whatever one did before has arrived at the other.
  void Meet();
  // A number for the other end, and its.
  void Tell(long number);
  long Hear();
  // A line of the transcript: a call's result, and errno when it is -1.
  void Say(const std::string& what, long result);
  // The same for received bytes, which have to be what Bytes() made.
  void SayBytes(const std::string& what, ssize_t got, const std::vector<char>& bytes);
  [[nodiscard]] const std::string& transcript() const { return transcript_; }

  [[nodiscard]] int beside() const { return beside_; }

 private:
  int beside_;
  std::string transcript_;
};

// Bytes [from, from + count) of the one stream that all scenarios send.
std::vector<char> Bytes(std::size_t from, std::size_t count);

// What most scenarios do, and say: sends of those bytes, receives into a buffer of `size`, polls
// the connection for at most `timeout` ms.
void Send(Party& party, std::size_t from, std::size_t count, int flags = MSG_NOSIGNAL);
void Receive(Party& party, const char* what, std::size_t size, int flags = 0);
void SayPoll(Party& party, const char* what, short events, int timeout);

// A connection between both processes, which have a UNIX socket `beside` it. `prepare` is called
// with the socket before it is connected, or listens; it may be null.
int Connect(int beside, void (*prepare)(int fd));
int Accept(int beside, void (*prepare)(int listener));
// Enough calls that both ends have met, and a quiet connection afterwards: so often a byte there
// and back. What is sent later arrives at once.
constexpr int kWarmUp = 40;
void WarmUp(int fd, bool first);

struct Scenario {
  const char* name;
  void (*client)(Party&);
  void (*server)(Party&);
  long upgraded = 1;          // connections, with both ends under rdsock
  bool needs_filter = false;  // SO_ATTACH_FILTER, which some kernels keep for CAP_NET_ADMIN
};
extern const std::vector<Scenario> kDataScenarios;
extern const std::vector<Scenario> kWaitScenarios;
extern const std::vector<Scenario> kTurnScenarios;
extern const std::vector<Scenario> kThreadScenarios;
extern const std::vector<Scenario> kRareScenarios;
extern const std::vector<Scenario> kErrorScenarios;
extern const std::vector<Scenario> kProcessScenarios;
extern const std::vector<Scenario> kExecScenarios;
extern const std::vector<Scenario> kSignalScenarios;
extern const std::vector<Scenario> kFlagScenarios;
extern const std::vector<Scenario> kUrgentScenarios;
extern const std::vector<Scenario> kEndScenarios;
extern const std::vector<Scenario> kCrowdScenarios;

}  // namespace rdfs::sock
