#include "tests/transport/conformance/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include "tests/transport/conformance/harness.h"

namespace rdfs::transport::conformance {
namespace {

// Where the peer finds its end of the control lines.
constexpr int kControlFd = 3;

// What starts this program once more: itself, or what runs programs of another processor here.
std::vector<std::string> ThisProgram() {
  std::vector<std::string> words;
  std::istringstream emulator(RDFS_EMULATOR);
  for (std::string word; emulator >> word;) words.push_back(word);
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  words.emplace_back(path.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return words;
}

struct Regions {
  Shared readable, writable;
};

Regions ShareBoth(End& end, const std::shared_ptr<Domain>& domain) {
  Regions regions{ShareFrom(end, domain, kPeerRegionBytes, Access::kRemoteRead),
                  ShareFrom(end, domain, kPeerRegionBytes, Access::kRemoteWrite)};
  Fill(regions.readable.region->bytes(), kPeerSeed);
  Fill(regions.writable.region->bytes(), kPeerSeed);
  const std::array<RemoteRegionWire, 2> wire{RemoteRegionWire::From(regions.readable.remote),
                                             RemoteRegionWire::From(regions.writable.remote)};
  end.Send(std::as_bytes(std::span(wire)));
  return regions;
}

// Obeys messages until the connection is over or kQuit.
void Obey(End& end, const Regions& regions) {
  while (end.alive()) {
    (void)DriveUntil({&end}, [&] { return !end.messages.empty() || !end.alive(); });
    while (!end.messages.empty() && end.alive()) {
      const Bytes message = std::move(end.messages.front());
      end.messages.pop_front();
      ByteReader reader(message);
      const char command = static_cast<char>(reader.ReadBytes(1)[0]);
      if (command == kQuit) return;
      if (command == kEcho) end.Send(message);
      if (command == kCheck) {
        const Bytes expected = Pattern(kPeerRegionBytes, reader.Read<Le64>());
        const bool same = Equal(regions.writable.region->bytes(), expected);
        end.Send(AsBytes(same ? "same" : "differs"));
      }
    }
  }
}

End Serve(const Subject& subject, Transport& transport, const std::shared_ptr<Domain>& domain,
          Control& control) {
  auto listener = transport.Listen(subject.listen);
  if (!listener.ok()) {
    control.Say("error " + listener.status().ToString());
    return End();
  }
  control.Say((*listener)->endpoint().ToString());
  const auto incoming = AcceptNext(**listener);
  if (incoming == nullptr) return End();
  auto accepted = incoming->Accept(domain);
  return accepted.ok() ? End(*std::move(accepted)) : End();
}

End Dial(Transport& transport, const std::shared_ptr<Domain>& domain, Control& control) {
  const auto endpoint = Endpoint::Parse(control.Hear());
  if (!endpoint.ok()) return End();
  auto connected = transport.Connect(*endpoint, domain, AsBytes("token"), DeadlineAfter(kPatience));
  if (connected.ok()) return End(*std::move(connected));
  control.Say("error " + connected.status().ToString());
  return End();
}

}  // namespace

void Control::Say(std::string_view line) const {
  const std::string text = std::string(line) + "\n";
  (void)!send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

std::string Control::Hear() {
  const Deadline deadline = DeadlineAfter(kPatience);
  while (true) {
    const std::size_t end = heard_.find('\n');
    if (end != std::string::npos) {
      const std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    pollfd entry{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, PollTimeoutMs(deadline, BootClock::now())) <= 0) return {};
    std::array<char, 512> buffer{};
    const ssize_t count = recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (count <= 0) return {};
    heard_.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

PeerProcess::PeerProcess(const Subject& subject, const std::string& role) : control_(Fd()) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
  control_ = Control(Fd(ends[0]));
  const Fd theirs(
      fcntl(ends[1], F_DUPFD_CLOEXEC, kControlFd + 1));  // dup2 onto itself keeps CLOEXEC
  (void)close(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kControlFd);
  std::vector<std::string> words = ThisProgram();
  words.push_back("--conformance-peer=" + role);
  words.push_back("--subject=" + subject.name);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) pid_ = -1;
  EXPECT_EQ(error, 0) << "cannot start the peer: " << strerror(error);
}

PeerProcess::~PeerProcess() { Kill(); }

void PeerProcess::Kill() {
  if (pid_ <= 0) return;
  (void)kill(pid_, SIGKILL);
  (void)Wait();
}

void PeerProcess::Stop() {
  ASSERT_GT(pid_, 0);
  ASSERT_EQ(kill(pid_, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  ASSERT_TRUE(WIFSTOPPED(status));
}

void PeerProcess::Continue() { ASSERT_EQ(kill(pid_, SIGCONT), 0); }

int PeerProcess::Wait() {
  int status = 0;
  const pid_t waited = pid_ > 0 ? waitpid(pid_, &status, 0) : -1;
  pid_ = -1;
  return waited > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int RunPeer(const Subject& subject, const std::string& role, Control control) {
  const auto transport = subject.make();
  const auto domain = Domain::Create("peer");
  End end = role == "serve" ? Serve(subject, *transport, domain, control)
                            : Dial(*transport, domain, control);
  if (!end.alive()) return 2;
  const Regions regions = ShareBoth(end, domain);
  Obey(end, regions);
  control.Say("over " + end.over().ToString());
  end.Destroy();
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

}  // namespace rdfs::transport::conformance
