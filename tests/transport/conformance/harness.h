// What the suite's cases share: a connected pair in one process, an end that is driven by polling,
// byte patterns, and the fixture that finds leaked descriptors and threads.
//
// Threads: a Pair's two ends are driven by the test's thread in turn unless a case says otherwise.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/transport/conformance/suite.h"
#include "transport/transport.h"

namespace rdfs::transport::conformance {

using Bytes = std::vector<std::byte>;

// How long anything that must happen may take: slow guests and sanitizers included.
inline constexpr std::chrono::seconds kPatience{20};

// Bytes that depend on the seed and on their place, so that a shifted copy never matches.
void Fill(MutableByteSpan out, std::uint64_t seed);
Bytes Pattern(std::size_t size, std::uint64_t seed);
bool Equal(ByteSpan a, ByteSpan b);

std::unique_ptr<MemoryRegion> MakeRegion(const std::shared_ptr<Domain>& domain, std::size_t size,
                                         Access access);

// Waits for the next peer of `listener`; null (and a failure) after kPatience.
std::unique_ptr<Incoming> AcceptNext(Listener& listener);

// One end of a connection and all that it was told.
class End {
 public:
  End() = default;
  explicit End(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}

  Connection& operator*() { return *connection_; }
  Connection* operator->() { return connection_.get(); }
  [[nodiscard]] bool alive() const { return connection_ != nullptr && over_.ok(); }
  void Destroy() { connection_.reset(); }

  // Polls once and sorts what came. Returns how much; an error goes to over().
  std::size_t Step();
  // Posts, polling while the transport says busy. A failure of the test unless it succeeds.
  Ticket Read(const LocalSlice& to, const RemoteSlice& from, Order order = Order::kFree);
  Ticket Write(const LocalSlice& from, const RemoteSlice& to);
  void Send(ByteSpan message);

  [[nodiscard]] const Status& over() const { return over_; }
  [[nodiscard]] bool Done(Ticket ticket) const { return done_.contains(ticket); }
  [[nodiscard]] const Status& StatusOf(Ticket ticket) const { return done_.at(ticket); }
  [[nodiscard]] std::size_t done_count() const { return done_.size(); }
  std::deque<Bytes> messages;
  // The other end where it is in this process, too: polled while a post has to wait.
  End* partner = nullptr;

 private:
  Ticket Post(const std::function<Result<Ticket>()>& post);

  std::unique_ptr<Connection> connection_;
  std::set<Ticket> posted_;
  std::map<Ticket, Status> done_;
  Status over_;
};

// Polls the ends in turn until `done`, sleeping on their descriptors while all are idle. False
// after `patience`.
bool DriveUntil(const std::vector<End*>& ends, const std::function<bool()>& done,
                std::chrono::nanoseconds patience = kPatience);

// Both ends of one connection in this process, each with a domain of its own.
struct Pair {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
  std::shared_ptr<Domain> client_domain, server_domain;
  End client, server;

  bool Drive(const std::function<bool()>& done, std::chrono::nanoseconds patience = kPatience) {
    client.partner = &server;
    server.partner = &client;
    return DriveUntil({&client, &server}, done, patience);
  }
  // Drives until `ticket` of the client has completed, and returns its status.
  Status Finish(Ticket ticket);
  // Connections first, the transport last, as everybody does it.
  void Destroy();
};
// A failure of the test, and ends that are null, unless it succeeds.
Pair Connect(const Subject& subject);
// Once more over the same listener.
void ConnectAgain(Pair& pair, End& client, End& server);

// A region of the server's that the client may reach, and how.
struct Shared {
  std::unique_ptr<MemoryRegion> region;
  RemoteRegion remote;
};
Shared ShareFrom(End& end, const std::shared_ptr<Domain>& domain, std::size_t size, Access access);

class Conformance : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;
  void TearDown() override;
  [[nodiscard]] static const Subject& subject() { return GetParam(); }
  [[nodiscard]] static Pair Connected() { return Connect(GetParam()); }

 private:
  std::set<std::string> descriptors_;
  std::size_t threads_ = 0;
};

// Which subjects Main was given. Called when tests are being instantiated.
const std::vector<Subject>& Subjects();
std::string SubjectName(const testing::TestParamInfo<Subject>& info);
void PrintTo(const Subject& subject, std::ostream* out);  // for GoogleTest's messages

}  // namespace rdfs::transport::conformance

// Instantiates a fixture derived from Conformance for every subject of the program.
#define RDFS_CONFORMANCE(fixture)                                                         \
  INSTANTIATE_TEST_SUITE_P(Over, fixture,                                                 \
                           testing::ValuesIn(::rdfs::transport::conformance::Subjects()), \
                           ::rdfs::transport::conformance::SubjectName)
