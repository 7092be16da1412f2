// TLS: the same PSK at both ends or nothing; no plaintext on the wire; whole connections over it.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <thread>

#include "tests/transport/tcp/raw_peer.h"

namespace rdfs::transport::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Psk = std::array<std::byte, 32>;

Psk PskOf(int value) {
  Psk psk{};
  psk.fill(static_cast<std::byte>(value));
  return psk;
}

struct TlsPair {
  Result<std::unique_ptr<ByteStream>> client, server;
};

TlsPair Handshake(std::unique_ptr<ByteStream> client, std::unique_ptr<ByteStream> server,
                  const Psk& client_psk, const Psk& server_psk) {
  TlsPair pair{Status(Code::kInternal, "not yet"), Status(Code::kInternal, "not yet")};
  std::jthread other([&] {
    pair.server =
        WrapInTls(std::move(server), TlsRole::kServer, server_psk, DeadlineAfter(seconds(20)));
  });
  pair.client =
      WrapInTls(std::move(client), TlsRole::kClient, client_psk, DeadlineAfter(seconds(20)));
  return pair;
}

TlsPair OverSocket(const Psk& client_psk, const Psk& server_psk) {
  auto ends = SocketPair();
  return Handshake(MakeSocketStream(std::move(ends[0]), "server"),
                   MakeSocketStream(std::move(ends[1]), "client"), client_psk, server_psk);
}

// Moves `size` bytes from `from` to `to` in pieces of random sizes and compares them.
void Transfer(ByteStream& from, ByteStream& to, std::size_t size) {
  std::mt19937_64 random(size);
  Bytes sent(size);
  for (std::byte& b : sent) b = static_cast<std::byte>(random());
  Bytes received(size);
  std::size_t written = 0;
  std::size_t read = 0;
  while (read < size) {
    std::array<iovec, 8> parts{};
    std::size_t at = written;
    for (iovec& part : parts) {
      part.iov_len = std::min<std::size_t>(random() % 40'000, size - at);
      part.iov_base = sent.data() + at;
      at += part.iov_len;
    }
    const auto wrote = from.Write(parts);
    ASSERT_TRUE(wrote.ok()) << wrote.status().ToString();
    written += *wrote;
    const std::size_t most = std::min<std::size_t>(1 + random() % 50'000, size - read);
    const auto got = to.Read(MutableByteSpan(received).subspan(read, most));
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    read += *got;
  }
  EXPECT_EQ(sent, received);
}

TEST(Tls, WithTheSamePskCarriesBytesBothWays) {
  const TlsPair pair = OverSocket(PskOf(1), PskOf(1));
  ASSERT_TRUE(pair.client.ok()) << pair.client.status().ToString();
  ASSERT_TRUE(pair.server.ok()) << pair.server.status().ToString();
  EXPECT_TRUE((*pair.client)->encrypted());
  for (const std::size_t size : {1U, 1000U, 16'384U, 16'385U, 3'000'000U}) {
    Transfer(**pair.client, **pair.server, size);
    Transfer(**pair.server, **pair.client, size);
  }
  (*pair.client)->Shutdown();
  std::byte byte{};
  EXPECT_EQ((*pair.server)->Read({&byte, 1}).status().code(), Code::kDisconnected);
}

TEST(Tls, WorksOverPipes) {
  std::array<int, 2> there{};
  std::array<int, 2> back{};
  ASSERT_EQ(pipe2(there.data(), O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(back.data(), O_CLOEXEC), 0);
  const TlsPair pair =
      Handshake(MakePipeStream(Fd(back[0]), Fd(there[1]), "server"),
                MakePipeStream(Fd(there[0]), Fd(back[1]), "client"), PskOf(2), PskOf(2));
  ASSERT_TRUE(pair.client.ok()) << pair.client.status().ToString();
  ASSERT_TRUE(pair.server.ok()) << pair.server.status().ToString();
  Transfer(**pair.client, **pair.server, 1'000'000);
  Transfer(**pair.server, **pair.client, 1'000'000);
}

TEST(Tls, WithDifferentPsksFailsAtBothEnds) {
  const TlsPair pair = OverSocket(PskOf(1), PskOf(2));
  EXPECT_EQ(pair.client.status().code(), Code::kAuthenticationFailed)
      << pair.client.status().ToString();
  EXPECT_EQ(pair.server.status().code(), Code::kAuthenticationFailed)
      << pair.server.status().ToString();
}

TEST(Tls, APskOfAnotherLengthIsRefused) {
  auto ends = SocketPair();
  EXPECT_EQ(WrapInTls(MakeSocketStream(std::move(ends[0]), "x"), TlsRole::kClient,
                      ByteSpan(PskOf(1)).first(31), DeadlineAfter(seconds(1)))
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST(Tls, ASilentPeerCostsTheDeadline) {
  for (const TlsRole role : {TlsRole::kClient, TlsRole::kServer}) {
    auto ends = SocketPair();
    const auto stream = WrapInTls(MakeSocketStream(std::move(ends[0]), "nobody"), role, PskOf(1),
                                  DeadlineAfter(milliseconds(50)));
    EXPECT_EQ(stream.status().code(), Code::kDeadlineExceeded) << stream.status().ToString();
  }
}

TEST(Tls, APeerThatSpeaksSomethingElseOrGoesAwayFails) {
  for (const std::string_view text : {std::string_view("GET / HTTP/1.1\r\n\r\n"),
                                      std::string_view("\x16\x03\x01\xff\xff garbage")}) {
    auto ends = SocketPair();
    ASSERT_GT(send(ends[1].get(), text.data(), text.size(), 0), 0);
    ends[1].Reset();
    const auto stream = WrapInTls(MakeSocketStream(std::move(ends[0]), "x"), TlsRole::kServer,
                                  PskOf(1), DeadlineAfter(seconds(10)));
    EXPECT_EQ(stream.status().scope(), Scope::kConnection) << stream.status().ToString();
  }
}

// A stream that sees the records which are written, and takes as much of them as it is told to.
class Wire final : public ByteStream {
 public:
  explicit Wire(std::unique_ptr<ByteStream> inner) : inner_(std::move(inner)) {}
  enum class Takes { kAll, kPieces, kNothing };
  Takes takes = Takes::kAll;
  // Of messages of five bytes: those that change the key, as long as nothing else is so long.
  [[nodiscard]] int key_changes() const { return key_changes_; }

  Result<std::size_t> Read(MutableByteSpan out) override { return inner_->Read(out); }
  Result<std::size_t> Write(std::span<const iovec> parts) override {
    iovec part = parts.front();
    if (takes == Takes::kNothing || (takes == Takes::kPieces && ++calls_ % 3 == 0)) return 0U;
    if (takes == Takes::kPieces) part.iov_len = std::min(part.iov_len, 1 + calls_ % 37);
    auto count = inner_->Write(std::span(&part, 1));
    if (count.ok()) See({static_cast<const std::byte*>(part.iov_base), *count});
    return count;
  }
  [[nodiscard]] bool HasBufferedInput() const override { return false; }
  [[nodiscard]] short read_events() const override { return POLLIN; }
  [[nodiscard]] short write_events() const override { return POLLOUT; }
  [[nodiscard]] int read_fd() const override { return inner_->read_fd(); }
  [[nodiscard]] int write_fd() const override { return inner_->write_fd(); }
  [[nodiscard]] bool encrypted() const override { return false; }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }
  void Shutdown() override { inner_->Shutdown(); }

 private:
  // RFC 8446, 5.2: a type, a version, the length; in that the kind of the record and 16 bytes more.
  void See(ByteSpan bytes) {
    constexpr std::size_t kHead = 5;
    constexpr std::size_t kKeyChange = 5 + 1 + 16;
    for (const std::byte byte : bytes) {
      if (head_.size() == kHead) {
        if (--body_ == 0) head_.clear();
        continue;
      }
      head_.push_back(byte);
      if (head_.size() < kHead) continue;
      body_ = std::to_integer<std::size_t>(head_[3]) << 8U | std::to_integer<std::size_t>(head_[4]);
      if (head_[0] == std::byte{23} && body_ == kKeyChange) ++key_changes_;
    }
  }

  const std::unique_ptr<ByteStream> inner_;
  std::size_t calls_ = 0;
  Bytes head_;
  std::size_t body_ = 0;
  int key_changes_ = 0;
};

// The two ends of a TLS connection that change their keys behind so many records, and their wires.
struct ShortKeys {
  explicit ShortKeys(std::uint64_t records) {
    auto ends = SocketPair();
    std::array<std::unique_ptr<Wire>, 2> made;
    for (std::size_t i = 0; i < 2; ++i) {
      made[i] = std::make_unique<Wire>(MakeSocketStream(std::move(ends[i]), "the other"));
      wires[i] = made[i].get();
    }
    Result<std::unique_ptr<ByteStream>> server(Status(Code::kInternal, "not yet"));
    std::jthread other([&] {
      server = WrapInTls(std::move(made[1]), TlsRole::kServer, PskOf(4), DeadlineAfter(seconds(20)),
                         records);
    });
    auto client = WrapInTls(std::move(made[0]), TlsRole::kClient, PskOf(4),
                            DeadlineAfter(seconds(20)), records);
    other.join();
    EXPECT_TRUE(client.ok() && server.ok());
    if (client.ok() && server.ok()) streams = {*std::move(client), *std::move(server)};
  }
  std::array<Wire*, 2> wires{};
  std::array<std::unique_ptr<ByteStream>, 2> streams;
};

TEST(Tls, ChangesItsKeysInBothDirectionsAtOnce) {
  constexpr std::size_t kRecords = 400;
  constexpr std::size_t kBytes = 100;  // of one
  ShortKeys ends(4);
  ASSERT_NE(ends.streams[0], nullptr);
  std::mt19937_64 random(1);
  std::array<Bytes, 2> sent{Bytes(kRecords * kBytes), Bytes(kRecords * kBytes)};
  std::array<Bytes, 2> received = sent;  // at the other end
  for (Bytes& bytes : sent) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  }
  for (Wire* const wire : ends.wires) wire->takes = Wire::Takes::kPieces;
  std::array<std::size_t, 2> written{};
  std::array<std::size_t, 2> read{};
  // Each round moves something: bounded, so that what stands still fails.
  for (int round = 0; round < 1'000'000 && read != std::array{sent[0].size(), sent[1].size()};
       ++round) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (written[i] < sent[i].size()) {
        const iovec part{sent[i].data() + written[i], kBytes};
        const auto wrote = ends.streams[i]->Write(std::span(&part, 1));
        ASSERT_TRUE(wrote.ok()) << wrote.status().ToString();
        written[i] += *wrote;
      }
      const std::size_t most = std::min<std::size_t>(1 + random() % 500, sent[i].size() - read[i]);
      if (most == 0) continue;
      const auto got =
          ends.streams[1 - i]->Read(MutableByteSpan(received[i]).subspan(read[i], most));
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      read[i] += *got;
    }
  }
  EXPECT_EQ(sent, received);
  for (const Wire* const wire : ends.wires) EXPECT_EQ(wire->key_changes(), kRecords / 4 - 1);
}

TEST(Tls, ReadsWhileItsNewKeyWaitsForRoom) {
  ShortKeys ends(1);
  ASSERT_NE(ends.streams[0], nullptr);
  Bytes text(100, std::byte{7});
  const iovec part{text.data(), text.size()};
  Bytes out(2 * text.size());
  const auto write = [&part](ByteStream& stream) { return *stream.Write(std::span(&part, 1)); };
  for (const auto& stream : ends.streams) ASSERT_EQ(write(*stream), text.size());
  for (Wire* const wire : ends.wires) wire->takes = Wire::Takes::kNothing;
  for (const auto& stream : ends.streams) ASSERT_EQ(write(*stream), 0U);
  // Both have a new key to tell of, and neither can.
  for (const auto& stream : ends.streams) EXPECT_EQ(*stream->Read(out), text.size());
  for (Wire* const wire : ends.wires) wire->takes = Wire::Takes::kAll;
  for (const auto& stream : ends.streams) EXPECT_EQ(write(*stream), text.size());
  for (const auto& stream : ends.streams) EXPECT_EQ(*stream->Read(out), text.size());
  for (const Wire* const wire : ends.wires) EXPECT_EQ(wire->key_changes(), 1);
}

// The two ends of a TLS connection with a relay between them that sees, and may change, each byte.
class TlsRelay : public testing::Test {
 protected:
  void SetUp() override {
    auto left = SocketPair();
    auto right = SocketPair();
    relay_ = {std::move(left[1]), std::move(right[1])};
    std::jthread pump([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) Pump(5);
    });
    pair_.emplace(Handshake(MakeSocketStream(std::move(left[0]), "server"),
                            MakeSocketStream(std::move(right[0]), "client"), PskOf(3), PskOf(3)));
    pump.request_stop();
    pump.join();
    ASSERT_TRUE(pair_->client.ok() && pair_->server.ok());
  }
  void Pump(int timeout_ms) {
    std::array<pollfd, 2> entries{pollfd{relay_[0].get(), POLLIN, 0},
                                  pollfd{relay_[1].get(), POLLIN, 0}};
    (void)poll(entries.data(), 2, timeout_ms);
    for (std::size_t i = 0; i < 2; ++i) {
      std::array<char, 4096> buffer{};
      const ssize_t count = recv(relay_[i].get(), buffer.data(), buffer.size(), 0);
      if (count <= 0) continue;
      if (flip_) buffer[static_cast<std::size_t>(count) / 2] ^= 1;
      seen_.append(buffer.data(), static_cast<std::size_t>(count));
      (void)!send(relay_[1 - i].get(), buffer.data(), static_cast<std::size_t>(count),
                  MSG_NOSIGNAL);
    }
  }

  std::array<Fd, 2> relay_;
  std::optional<TlsPair> pair_;
  std::string seen_;
  bool flip_ = false;
};

TEST_F(TlsRelay, NoPlaintextIsOnTheWire) {
  std::string secret = "a secret that nobody else may read";
  const iovec part{secret.data(), secret.size()};
  ASSERT_EQ(*(*pair_->client)->Write(std::span(&part, 1)), secret.size());
  Pump(1000);
  std::array<std::byte, 100> out;
  ASSERT_EQ(*(*pair_->server)->Read(out), secret.size());
  EXPECT_EQ(AsText(ByteSpan(out).first(secret.size())), secret);
  EXPECT_GT(seen_.size(), secret.size());
  EXPECT_EQ(seen_.find(secret.substr(0, 8)), std::string::npos);
}

TEST_F(TlsRelay, AChangedBitEndsTheStreamAndDeliversNothing) {
  std::string text = "do this";
  const iovec part{text.data(), text.size()};
  ASSERT_EQ(*(*pair_->client)->Write(std::span(&part, 1)), text.size());
  flip_ = true;
  Pump(1000);
  std::array<std::byte, 100> out;
  const auto got = (*pair_->server)->Read(out);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().scope(), Scope::kConnection) << got.status().ToString();
}

TEST_F(TlsRelay, AStreamThatIsCutIsTheEndForBoth) {
  relay_ = {};
  std::array<std::byte, 100> out;
  EXPECT_EQ((*pair_->server)->Read(out).status().code(), Code::kDisconnected);
  EXPECT_EQ((*pair_->client)->Read(out).status().code(), Code::kDisconnected);
}

}  // namespace
}  // namespace rdfs::transport::tcp
