#include "tests/transport/session/server_fixture.h"

#include <array>
#include <utility>

#include "transport/base/log.h"

namespace rdfs::transport {
namespace {

void ServeEcho(const std::stop_token& stop, Connection& lane) {
  std::array<Completion, 16> completions;
  while (!stop.stop_requested()) {
    const auto count = lane.Wait(completions, DeadlineAfter(std::chrono::milliseconds(50)));
    if (!count.ok()) return;
    for (std::size_t i = 0; i < *count; ++i) {
      if (completions[i].kind != Completion::Kind::kMessage) continue;
      const std::vector<std::byte> copy(completions[i].message.begin(),
                                        completions[i].message.end());
      if (!lane.Send(copy).ok()) return;
    }
    if (!lane.Flush().ok()) return;
  }
}

}  // namespace

Result<Admission> EchoHost::Admit(const SessionRequest& request) {
  const std::lock_guard lock(mutex_);
  last_ = request;
  last_.request = {};
  if (request.service != "echo") {
    return Status(Code::kNotFound, "this server has no service '" + request.service + "'");
  }
  std::vector<std::byte> grant(request.request.begin(), request.request.end());
  if (AsText(request.request) == "too much") grant.resize(4097);
  auto context = std::make_shared<std::string>(request.service);
  sessions_[request.session_id] = context;
  return Admission{Domain::Create("echo"), std::move(grant), context};
}

void EchoHost::OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
                      std::unique_ptr<Connection> lane) {
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(sessions_[session_id], context);
  threads_.emplace_back(
      [lane = std::move(lane)](const std::stop_token& stop) { ServeEcho(stop, *lane); });
}

void EchoHost::OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) {
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(sessions_[session_id], context);
  sessions_.erase(session_id);
  ++ended_;
  changed_.notify_all();
}

void EchoHost::StopLanes() {
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
}

bool EchoHost::AwaitEnds(std::size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return ended_ >= count; });
}

SessionRequest EchoHost::LastRequest() {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::size_t EchoHost::lanes() {
  const std::lock_guard lock(mutex_);
  return threads_.size();
}

Server::Server(AcceptorOptions options) {
  SetLogLevel(LogLevel::kError);  // wrong keys are what many of these tests are about
  auto acceptor = Acceptor::Create(std::move(options), host_);
  EXPECT_TRUE(acceptor.ok()) << acceptor.status().ToString();
  acceptor_ = *std::move(acceptor);
  thread_ = std::thread([this] { EXPECT_TRUE(acceptor_->Run().ok()); });
}

void Server::Stop() {
  if (!thread_.joinable()) return;
  acceptor_->Stop();
  thread_.join();
}

AcceptorOptions ServerOptions() {
  AcceptorOptions options;
  options.addresses = {"127.0.0.1"};
  options.port = 0;
  options.keys = {{"default", Key("sesame")}};
  return options;
}

DialOptions ClientOptions(const Server& server) {
  DialOptions options;
  options.host = "127.0.0.1";
  options.port = server.port();
  options.key = Key("sesame");
  options.service = "echo";
  options.request = {std::byte{'h'}, std::byte{'i'}};
  options.deadline = DeadlineAfter(std::chrono::seconds(10));
  return options;
}

void ExpectEcho(Connection& lane, std::string_view text) {
  ASSERT_TRUE(lane.Send(AsBytes(text)).ok());
  std::array<Completion, 4> completions;
  const auto count = lane.Wait(completions, DeadlineAfter(std::chrono::seconds(10)));
  ASSERT_TRUE(count.ok()) << count.status().ToString();
  ASSERT_EQ(*count, 1U);
  EXPECT_EQ(AsText(completions[0].message), text);
}

}  // namespace rdfs::transport
