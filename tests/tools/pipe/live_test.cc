// Both ends in one process, over real sessions and lanes: what the sanitizers can look into.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "tests/tools/pipe/temp_dir.h"
#include "tools/pipe/receive/door.h"
#include "tools/pipe/receive/receiver.h"
#include "tools/pipe/send/delivery.h"
#include "tools/pipe/send/sender.h"
#include "tools/pipe/wire/digest.h"
#include "tools/pipe/wire/lane_loop.h"
#include "transport/session/acceptor.h"
#include "transport/session/session.h"
#include "transport/tcp/transport.h"

namespace rdfs::pipe {
namespace {

using transport::Kind;
using transport::Session;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

transport::AcceptorOptions AcceptFor() {
  transport::AcceptorOptions accept;
  accept.addresses = {"127.0.0.1"};
  accept.port = 0;
  accept.keys = {{"default", transport::Key("sesame")}};
  return accept;
}

struct Wishes {
  std::optional<int> level;
  bool sealed = false;
  int threads = 3;
};

class PipeLive : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    auto door = Door::Create({.lane_limit = lane_limit_});
    ASSERT_TRUE(door.ok());
    door_ = *std::move(door);
    auto acceptor = transport::Acceptor::Create(AcceptFor(), *door_);
    ASSERT_TRUE(acceptor.ok()) << acceptor.status().message();
    acceptor_ = *std::move(acceptor);
    accepting_ = std::thread([this] { (void)acceptor_->Run(); });
  }
  void TearDown() override {
    if (acceptor_ == nullptr) return;
    acceptor_->Stop();
    accepting_.join();
  }

  Result<std::unique_ptr<Session>> Dial(std::string_view key, const Hello& hello,
                                        const std::shared_ptr<transport::Domain>& domain) {
    transport::DialOptions dial;
    dial.host = "127.0.0.1";
    dial.port = acceptor_->port();
    dial.key = transport::Key(key);
    dial.require = GetParam();
    dial.service = std::string(kServiceName);
    dial.request = hello.Encode();
    dial.deadline = DeadlineAfter(20s);
    return Session::Dial(std::move(dial), domain);
  }

  Status Receive(SinkOptions sink, const Wishes& wishes) {
    RDFS_ASSIGN_OR_RETURN(Guest guest, door_->Await(-1, DeadlineAfter(20s)));
    ReceiverSettings settings;
    settings.sink = std::move(sink);
    settings.threads = wishes.threads;
    settings.seekable = guest.hello.seekable;
    settings.piece_bytes = 64 << 10;
    if (guest.hello.sealed) {
      settings.from_us = Seal(guest.exporter, Direction::kFromReceiver);
      settings.from_peer = Seal(guest.exporter, Direction::kFromSender);
    }
    Progress progress(false, "rdrecv", BootClock::now());
    return Receiver(*guest.lane, guest.domain, std::move(settings), progress).Run();
  }

  Status Send(const std::string& path, const Wishes& wishes) {
    StopFlag stop{false};
    RDFS_ASSIGN_OR_RETURN(const auto source, Source::Open(path, stop));
    const auto domain = transport::Domain::Create("test");
    Hello hello;
    hello.sealed = wishes.sealed;
    hello.seekable = source->seekable();
    RDFS_ASSIGN_OR_RETURN(const auto session, Dial("sesame", hello, domain));
    RDFS_ASSIGN_OR_RETURN(const auto lane, session->OpenLane(DeadlineAfter(20s)));
    SenderSettings settings;
    settings.level = wishes.level;
    settings.threads = wishes.threads;
    if (wishes.sealed) {
      settings.from_us = Seal(session->exporter(), Direction::kFromSender);
      settings.from_peer = Seal(session->exporter(), Direction::kFromReceiver);
    }
    Progress progress(false, "rdsend", BootClock::now());
    return Sender(*lane, domain, *source, stop, std::move(settings), progress).Run();
  }

  // Both at once; their ends.
  std::pair<Status, Status> Both(const std::string& from, const SinkOptions& to,
                                 const Wishes& wishes) {
    Status received;
    std::thread receiver([&] { received = Receive(to, wishes); });
    Status sent = Send(from, wishes);
    receiver.join();
    return {std::move(sent), std::move(received)};
  }

  // A sender that says all it has to, `size` zeros, and is gone before anything of it is stored.
  Status SendAndGo(std::uint32_t size) {
    const auto domain = transport::Domain::Create("test");
    RDFS_ASSIGN_OR_RETURN(const auto session, Dial("sesame", Hello{}, domain));
    RDFS_ASSIGN_OR_RETURN(const auto lane, session->OpenLane(DeadlineAfter(20s)));
    std::array<transport::Completion, 4> welcome;
    RDFS_RETURN_IF_ERROR(lane->Wait(welcome, DeadlineAfter(20s)).status());
    RecordWire hole{};
    hole.type = static_cast<std::uint8_t>(MessageType::kRecord);
    hole.kind = static_cast<std::uint8_t>(RecordKind::kHole);
    hole.length = size;
    StreamDigest digest;
    digest.Add(0, size, hole.digest);
    EndWire end{};
    end.type = static_cast<std::uint8_t>(MessageType::kEnd);
    end.number = 1;
    end.length = size;
    end.digest = digest.Value();
    RDFS_RETURN_IF_ERROR(lane->Send(EncodeNumber(MessageType::kBegin, 0)));
    RDFS_RETURN_IF_ERROR(lane->Send(ToBytes(hole)));
    RDFS_RETURN_IF_ERROR(lane->Send(ToBytes(end)));
    return lane->Flush();
  }

  std::string Noise(std::size_t size) {
    std::mt19937 random(7);
    std::string out(size, '\0');
    std::ranges::generate(out, [&] { return static_cast<char>(random() % 64); });
    return out;
  }

  std::chrono::milliseconds lane_limit_{20000};
  TempDir dir_;
  std::unique_ptr<Door> door_;
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::thread accepting_;
};

TEST_P(PipeLive, FileToFile) {
  const std::string noise = Noise(3'000'001);
  dir_.Write("in", noise);
  const auto [sent, received] = Both(dir_ / "in", {.path = dir_ / "out"}, {});
  EXPECT_TRUE(sent.ok()) << sent.message();
  EXPECT_TRUE(received.ok()) << received.message();
  EXPECT_EQ(dir_.Read("out"), noise);
}

// Holes take a number as records do, and so their place in the ring.
TEST_P(PipeLive, AFileThatIsHalfHoles) {
  const std::string noise = Noise(128 << 10);
  dir_.Write("in", noise);
  std::fstream file(dir_ / "in", std::ios::in | std::ios::out | std::ios::binary);
  for (int i = 1; i < 40; ++i) {
    file.seekp(std::streamoff{i} << 19);
    file << noise << i;
  }
  file.close();
  const auto [sent, received] = Both(dir_ / "in", {.path = dir_ / "out"}, {});
  EXPECT_TRUE(sent.ok()) << sent.message();
  EXPECT_TRUE(received.ok()) << received.message();
  EXPECT_EQ(dir_.Read("out"), dir_.Read("in"));
}

TEST_P(PipeLive, CompressedAndSealed) {
  const std::string noise = Noise(1'000'001);
  dir_.Write("in", noise);
  const auto [sent, received] =
      Both(dir_ / "in", {.path = dir_ / "out"}, {.level = 1, .sealed = true});
  EXPECT_TRUE(sent.ok()) << sent.message();
  EXPECT_TRUE(received.ok()) << received.message();
  EXPECT_EQ(dir_.Read("out"), noise);
}

TEST_P(PipeLive, FifoToFifoKeepsTheOrder) {
  const std::string noise = Noise(2'000'003);
  ASSERT_EQ(mkfifo((dir_ / "in").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((dir_ / "out").c_str(), 0600), 0);
  std::thread writer([&] { dir_.Write("in", noise); });
  std::string got;
  std::thread reader([&] { got = dir_.Read("out"); });
  const auto [sent, received] = Both(dir_ / "in", {.path = dir_ / "out"}, {.level = 1});
  EXPECT_TRUE(sent.ok()) << sent.message();
  EXPECT_TRUE(received.ok()) << received.message();
  writer.join();
  reader.join();
  EXPECT_EQ(got, noise);
}

TEST_P(PipeLive, AFullDeviceEndsBoth) {
  dir_.Write("in", Noise(1'000'000));
  const auto [sent, received] = Both(dir_ / "in", {.path = "/dev/full"}, {});
  EXPECT_EQ(received.errno_value(), ENOSPC);
  EXPECT_NE(sent.message().find("the receiver gave up: cannot write /dev/full"), std::string::npos);
}

// The output is slower than the sender: when it is stored, there is nobody to tell.
TEST_P(PipeLive, AStreamThatCameWholeIsFinishedWithoutItsSender) {
  ASSERT_EQ(mkfifo((dir_ / "out").c_str(), 0600), 0);
  Status received;
  std::thread receiver([&] { received = Receive({.path = dir_ / "out"}, {}); });
  std::ifstream out;
  std::thread reader([&] { out.open(dir_ / "out"); });
  const Status sent = SendAndGo(5 << 20);
  EXPECT_TRUE(sent.ok()) << sent.message();
  reader.join();
  const std::string got{std::istreambuf_iterator<char>(out), {}};
  receiver.join();
  EXPECT_TRUE(received.ok()) << received.message();
  EXPECT_EQ(got, std::string(5 << 20, '\0'));
}

TEST_P(PipeLive, OneSenderOnly) {
  const auto domain = transport::Domain::Create("test");
  const auto wrong = Dial("simsim", Hello{}, domain);
  EXPECT_EQ(wrong.status().code(), Code::kAuthenticationFailed);
  auto first = Dial("sesame", Hello{}, domain);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(Dial("sesame", Hello{}, domain).status().code(), Code::kBusy);
  // It goes without a stream: the next one may come, once the end of the session was seen.
  *first = nullptr;
  const Deadline deadline = DeadlineAfter(20s);
  auto next = Dial("sesame", Hello{}, domain);
  while (next.status().code() == Code::kBusy && BootClock::now() < deadline) {
    next = Dial("sesame", Hello{}, domain);
  }
  EXPECT_TRUE(next.ok()) << next.status().message();
}

TEST_P(PipeLive, WhoHasComeInTimeMayBringItsLaneLater) {
  const auto session = Dial("sesame", Hello{}, transport::Domain::Create("test"));
  ASSERT_TRUE(session.ok()) << session.status().message();
  const Deadline deadline = DeadlineAfter(0s);
  std::promise<void> waits;
  Status status;
  std::thread receiver([&] {
    waits.set_value();
    status = door_->Await(-1, deadline).status();
  });
  waits.get_future().wait();
  const auto lane = (*session)->OpenLane(DeadlineAfter(20s));
  EXPECT_TRUE(lane.ok()) << lane.status().message();
  receiver.join();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_P(PipeLive, WhatIsNotOfferedHasAReason) {
  auto accept = AcceptFor();
  accept.offer = {GetParam()};
  const auto other = transport::Acceptor::Create(std::move(accept), *door_);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ((*other)->WhyNotOffered(GetParam()), "");
  EXPECT_NE((*other)->WhyNotOffered(Kind::kVerbs), "");
}

TEST_P(PipeLive, ADriverLooksAgainForAMomentAndThenSleeps) {
  const auto session = Dial("sesame", Hello{}, transport::Domain::Create("test"));
  ASSERT_TRUE(session.ok()) << session.status().message();
  const auto lane = (*session)->OpenLane(DeadlineAfter(20s));
  ASSERT_TRUE(lane.ok()) << lane.status().message();
  Turns turns(-1);
  EXPECT_TRUE(turns.LookAgain(**lane));
  const Deadline deadline = DeadlineAfter(10s);
  while (turns.LookAgain(**lane) && BootClock::now() < deadline) {
  }
  EXPECT_LT(BootClock::now(), deadline);
  EXPECT_FALSE(turns.LookAgain(**lane));
}

class PipeLiveInHaste : public PipeLive {
 protected:
  PipeLiveInHaste() { lane_limit_ = 3s; }
};

TEST_P(PipeLiveInHaste, WhoStopsBeforeItsStreamMakesRoom) {
  std::ofstream(dir_ / "in") << "content";
  const auto domain = transport::Domain::Create("test");
  const auto stopped = Dial("sesame", Hello{}, domain);
  ASSERT_TRUE(stopped.ok()) << stopped.status().message();
  Status received;
  std::thread receiver([&] { received = Receive({dir_ / "out"}, {}); });
  const Deadline deadline = DeadlineAfter(20s);
  Status sent;
  do {
    sent = Send(dir_ / "in", {});
  } while (sent.code() == Code::kBusy && BootClock::now() < deadline);
  receiver.join();
  EXPECT_TRUE(sent.ok()) << sent.message();
  EXPECT_TRUE(received.ok()) << received.message();
}

TEST_P(PipeLiveInHaste, WhoHasComeInTimeIsNotWaitedForForEver) {
  const auto session = Dial("sesame", Hello{}, transport::Domain::Create("test"));
  ASSERT_TRUE(session.ok()) << session.status().message();
  const Status status = door_->Await(-1, DeadlineAfter(0s)).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
}

// A listener whose queue is full drops what comes, as a firewall does.
TEST(PipeDelivery, WhereNobodyAnswersTheWaitIsKept) {
  const Fd full = *transport::tcp::ListenSocket("127.0.0.1", 0);
  ASSERT_EQ(listen(full.get(), 0), 0);
  const std::uint16_t port = *transport::tcp::LocalPort(full.get());
  std::vector<Fd> queue;
  for (bool silent = false; !silent;) {
    ASSERT_LT(queue.size(), 10U);
    auto socket = transport::tcp::ConnectSocket("127.0.0.1", port, DeadlineAfter(200ms));
    silent = !socket.ok();
    if (!silent) queue.push_back(*std::move(socket));
  }
  SendOptions options;
  options.hosts = {{"127.0.0.1", port}};
  options.key = transport::Key("sesame");
  options.wait = 100ms;
  StopFlag stop = false;
  Progress progress(false, "", BootClock::now());
  const TimePoint start = BootClock::now();
  const Delivery delivery = Deliver(options, Source::Open("/dev/null", stop), stop, -1, progress);
  EXPECT_LT(BootClock::now() - start, 8s) << "as long as a handshake may take";
  EXPECT_EQ(delivery.status.code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(delivery.status.message().starts_with("rdrecv does not answer: "))
      << delivery.status.message();
}

INSTANTIATE_TEST_SUITE_P(Over, PipeLive, testing::Values(Kind::kShm, Kind::kTcp),
                         [](const auto& over) { return std::string(transport::Name(over.param)); });

INSTANTIATE_TEST_SUITE_P(Over, PipeLiveInHaste, testing::Values(Kind::kShm, Kind::kTcp),
                         [](const auto& over) { return std::string(transport::Name(over.param)); });

}  // namespace
}  // namespace rdfs::pipe
