// The standalone listener and peers that do not say who they are.
#include "transport/tcp/listener.h"

#include <thread>

#include "tests/transport/tcp/raw_peer.h"

namespace rdfs::transport::tcp {
namespace {

using std::chrono::seconds;

class TcpListening : public testing::Test {
 protected:
  void SetUp() override {
    auto listener = MakeTransport()->Listen({Kind::kTcp, "127.0.0.1", 0});
    ASSERT_TRUE(listener.ok());
    listener_ = *std::move(listener);
  }
  Fd Dial() { return *ConnectSocket("127.0.0.1", listener_->endpoint().port, Soon()); }
  static Deadline Soon() { return DeadlineAfter(seconds(20)); }
  // Serves the listener until `done`, sleeping on its descriptor.
  void Serve(const std::function<bool()>& done) {
    const Deadline deadline = Soon();
    while (!done()) {
      ASSERT_LT(BootClock::now(), deadline);
      auto incoming = listener_->Accept();
      ASSERT_TRUE(incoming.ok()) << incoming.status().ToString();
      if (*incoming != nullptr) {
        tokens_.emplace_back(AsText((*incoming)->token()));
        (*incoming)->Reject(Status(Code::kBusy, "not today"));
        continue;
      }
      pollfd entry{listener_->fd(), POLLIN, 0};
      (void)poll(&entry, 1, 100);
    }
  }
  static bool IsClosed(const Fd& socket) {
    std::byte byte{};
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  }
  static void Say(const Fd& socket, std::string_view text) {
    ASSERT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

  std::unique_ptr<Listener> listener_;
  std::vector<std::string> tokens_;
};

TEST_F(TcpListening, ATokenThatComesByteByByteDelaysNobody) {
  const std::string slow = EncodePreface(AsBytes("slow"));
  const Fd crawler = Dial();
  for (std::size_t i = 0; i < slow.size(); ++i) {
    Say(crawler, slow.substr(i, 1));
    if (i + 1 == slow.size()) break;
    const Fd quick = Dial();
    Say(quick, EncodePreface(AsBytes("quick")));
    Serve([&] { return tokens_.size() == i + 1; });
    EXPECT_EQ(tokens_.back(), "quick");
  }
  Serve([&] { return tokens_.size() == slow.size(); });
  EXPECT_EQ(tokens_.back(), "slow");
}

TEST_F(TcpListening, PeersThatSpeakSomethingElseAreDropped) {
  using std::string_literals::operator""s;
  for (const std::string& text :
       {"GET / HTTP/1.1\r\n\r\n"s, "RDFP\x02\0\0\0"s, "RDFP\x01\xff\0\0"s, "RDFP\x01\0\x01\0"s}) {
    const Fd peer = Dial();
    Say(peer, text);
    Serve([&] {
      std::byte byte{};
      return recv(peer.get(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
    });
  }
  EXPECT_TRUE(tokens_.empty());
}

TEST_F(TcpListening, SilentPeersAreBoundedInNumber) {
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < TcpListener::kMaxHalfOpen + 10; ++i) {
    silent.push_back(Dial());
    ASSERT_TRUE(listener_->Accept().ok());  // takes it in
  }
  for (std::size_t i = 0; i < 10; ++i) EXPECT_TRUE(IsClosed(silent[i])) << i;
  EXPECT_FALSE(IsClosed(silent[10]));
  EXPECT_FALSE(IsClosed(silent.back()));
  const Fd good = Dial();
  Say(good, EncodePreface(AsBytes("good")));
  Serve([&] { return tokens_.size() == 1; });
  EXPECT_EQ(tokens_[0], "good");
}

TEST_F(TcpListening, ASilentPeerIsDroppedAfterItsTimeAndTheDescriptorSaysWhen) {
  const Fd silent = Dial();
  const TimePoint start = BootClock::now();
  ASSERT_TRUE(listener_->Accept().ok());  // takes it in
  pollfd entry{listener_->fd(), POLLIN, 0};
  ASSERT_GT(poll(&entry, 1, 20'000), 0);  // nothing but the timer can wake it
  EXPECT_GE(BootClock::now() - start, TcpListener::kPrefacePatience);
  ASSERT_TRUE(listener_->Accept().ok());
  EXPECT_TRUE(IsClosed(silent));
}

TEST_F(TcpListening, AListenerThatIsGoneEndsThoseWhoWait) {
  const Fd waiting = Dial();
  listener_.reset();
  std::byte byte{};
  pollfd entry{waiting.get(), POLLIN, 0};
  ASSERT_GT(poll(&entry, 1, 20'000), 0);
  EXPECT_LE(recv(waiting.get(), &byte, 1, 0), 0);
}

}  // namespace
}  // namespace rdfs::transport::tcp
