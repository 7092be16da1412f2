#include "tests/transport/conformance/harness.h"

#include <dirent.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace rdfs::transport::conformance {
namespace {

// Descriptors by number and what they refer to: "5 -> socket:[123]".
std::set<std::string> OpenDescriptors() {
  std::set<std::string> out;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return out;
  const std::string own = std::to_string(dirfd(directory));
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || name == own) continue;
    std::array<char, 256> target{};
    (void)!readlinkat(dirfd(directory), entry->d_name, target.data(), target.size() - 1);
    out.insert(name + " -> " + target.data());
  }
  closedir(directory);
  return out;
}

std::size_t ThreadCount() {
  std::size_t count = 0;
  DIR* directory = opendir("/proc/self/task");
  if (directory == nullptr) return 0;
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(directory);
  return count;
}

// A thread that has been joined may show for a moment longer: waits until at most `limit` are left.
std::size_t SettledThreadCount(std::size_t limit) {
  const Deadline deadline = DeadlineAfter(kPatience);
  while (ThreadCount() > limit && BootClock::now() < deadline) std::this_thread::yield();
  return ThreadCount();
}

std::uint64_t Mix(std::uint64_t x) {  // splitmix64's finaliser
  x ^= x >> 30U;
  x *= 0xbf58476d1ce4e5b9U;
  x ^= x >> 27U;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

void Fill(MutableByteSpan out, std::uint64_t seed) {
  for (std::size_t i = 0; i < out.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = Mix(seed * 0x9e3779b97f4a7c15U + i);
    std::memcpy(out.data() + i, &word, std::min(sizeof word, out.size() - i));
  }
}

Bytes Pattern(std::size_t size, std::uint64_t seed) {
  Bytes out(size);
  Fill(out, seed);
  return out;
}

bool Equal(ByteSpan a, ByteSpan b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

std::unique_ptr<MemoryRegion> MakeRegion(const std::shared_ptr<Domain>& domain, std::size_t size,
                                         Access access) {
  const auto peers = access == Access::kRemoteRead ? SharedMemory::Peers::kReadOnly
                                                   : SharedMemory::Peers::kMayWrite;
  auto memory = SharedMemory::Create("conformance", size, peers);
  EXPECT_TRUE(memory.ok()) << memory.status().ToString();
  if (!memory.ok()) return nullptr;
  auto region = domain->Register(*memory, access);
  EXPECT_TRUE(region.ok()) << region.status().ToString();
  return region.ok() ? *std::move(region) : nullptr;
}

std::unique_ptr<Incoming> AcceptNext(Listener& listener) {
  const Deadline deadline = DeadlineAfter(kPatience);
  while (true) {
    auto incoming = listener.Accept();
    EXPECT_TRUE(incoming.ok()) << incoming.status().ToString();
    if (!incoming.ok()) return nullptr;
    if (*incoming != nullptr) return *std::move(incoming);
    const int timeout = PollTimeoutMs(deadline, BootClock::now());
    pollfd entry{.fd = listener.fd(), .events = POLLIN, .revents = 0};
    (void)poll(&entry, 1, timeout);
    if (timeout == 0) {
      ADD_FAILURE() << "no peer came";
      return nullptr;
    }
  }
}

std::size_t End::Step() {
  if (!alive()) return 0;
  std::array<Completion, 16> out;
  auto count = connection_->Poll(out);
  if (!count.ok()) {
    over_ = count.status();
    return 0;
  }
  for (std::size_t i = 0; i < *count; ++i) {
    const Completion& completion = out[i];
    if (completion.kind == Completion::Kind::kMessage) {
      messages.emplace_back(completion.message.begin(), completion.message.end());
      continue;
    }
    EXPECT_TRUE(posted_.contains(completion.ticket)) << "a ticket that nobody was given";
    EXPECT_TRUE(done_.emplace(completion.ticket, completion.status).second) << "completed twice";
  }
  return *count;
}

Ticket End::Post(const std::function<Result<Ticket>()>& post) {
  const Deadline deadline = DeadlineAfter(kPatience);
  while (true) {
    auto ticket = post();
    if (ticket.ok()) {
      EXPECT_TRUE(posted_.insert(*ticket).second) << "the same ticket twice";
      return *ticket;
    }
    if (ticket.status().code() != Code::kBusy || BootClock::now() > deadline) {
      ADD_FAILURE() << ticket.status().ToString();
      return ~Ticket{0};
    }
    const auto moved = [this, before = done_.size()] { return done_.size() > before || !alive(); };
    const std::vector<End*> both{this, partner};
    // Briefly: a busy that was injected passes without anything moving.
    (void)DriveUntil(partner != nullptr ? both : std::vector<End*>{this}, moved,
                     std::chrono::milliseconds(1));
  }
}

Ticket End::Read(const LocalSlice& to, const RemoteSlice& from, Order order) {
  return Post([&] { return connection_->Read(to, from, order); });
}

Ticket End::Write(const LocalSlice& from, const RemoteSlice& to) {
  return Post([&] { return connection_->Write(from, to); });
}

void End::Send(ByteSpan message) {
  const Status status = connection_->Send(message);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

bool DriveUntil(const std::vector<End*>& ends, const std::function<bool()>& done,
                std::chrono::nanoseconds patience) {
  const Deadline deadline = DeadlineAfter(patience);
  while (!done()) {
    std::size_t progress = 0;
    for (End* end : ends) progress += end->Step();
    if (progress > 0) continue;
    if (done()) return true;
    if (BootClock::now() >= deadline) return false;
    std::vector<pollfd> entries;
    bool asleep = true;  // nobody has anything to poll for
    for (End* end : ends) {
      if (!end->alive()) continue;
      const auto armed = (*end)->Arm();
      asleep = asleep && armed.ok() && *armed;
      entries.push_back({.fd = (*end)->fd(), .events = POLLIN, .revents = 0});
    }
    if (entries.empty()) return false;  // every end is over: nothing more can happen
    if (asleep) {
      (void)poll(entries.data(), entries.size(), PollTimeoutMs(deadline, BootClock::now()));
    }
  }
  return true;
}

Status Pair::Finish(Ticket ticket) {
  const bool finished =
      Drive([&] { return client.Done(ticket) || !client.alive() || !server.alive(); });
  if (client.Done(ticket)) return client.StatusOf(ticket);
  if (!client.over().ok()) return client.over();
  return finished ? server.over() : Status(Code::kDeadlineExceeded, "the ticket never completed");
}

void Pair::Destroy() {
  server.Destroy();
  client.Destroy();
  listener.reset();
  transport.reset();
  client_domain.reset();
  server_domain.reset();
}

void ConnectAgain(Pair& pair, End& client, End& server) {
  std::jthread acceptor([&] {
    const auto incoming = AcceptNext(*pair.listener);
    if (incoming == nullptr) return;
    auto accepted = incoming->Accept(pair.server_domain);
    ASSERT_TRUE(accepted.ok()) << accepted.status().ToString();
    server = End(*std::move(accepted));
  });
  auto connected = pair.transport->Connect(pair.listener->endpoint(), pair.client_domain,
                                           AsBytes("token"), DeadlineAfter(kPatience));
  acceptor.join();
  ASSERT_TRUE(connected.ok()) << connected.status().ToString();
  client = End(*std::move(connected));
}

Pair Connect(const Subject& subject) {
  Pair pair;
  pair.transport = subject.make();
  pair.client_domain = Domain::Create("client");
  pair.server_domain = Domain::Create("server");
  auto listener = pair.transport->Listen(subject.listen);
  EXPECT_TRUE(listener.ok()) << listener.status().ToString();
  if (!listener.ok()) return pair;
  pair.listener = *std::move(listener);
  ConnectAgain(pair, pair.client, pair.server);
  return pair;
}

Shared ShareFrom(End& end, const std::shared_ptr<Domain>& domain, std::size_t size, Access access) {
  Shared out;
  out.region = MakeRegion(domain, size, access);
  if (out.region == nullptr) return out;
  auto remote = end->Share(*out.region);
  EXPECT_TRUE(remote.ok()) << remote.status().ToString();
  if (remote.ok()) out.remote = *remote;
  return out;
}

std::string SubjectName(const testing::TestParamInfo<Subject>& info) { return info.param.name; }

void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

void Conformance::SetUp() {
  // What libraries open once and keep (devices, their events) is no leak: a first connection opens
  // it.
  static std::set<std::string> warm;
  if (warm.insert(subject().name).second) {
    const Pair pair = Connected();
    ASSERT_TRUE(pair.client.alive() && pair.server.alive());
  }
  descriptors_ = OpenDescriptors();
  threads_ = ThreadCount();
}

void Conformance::TearDown() {
  EXPECT_EQ(OpenDescriptors(), descriptors_) << "descriptors were leaked";
  EXPECT_LE(SettledThreadCount(threads_), threads_) << "threads were left behind";
}

}  // namespace rdfs::transport::conformance
