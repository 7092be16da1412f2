// liar ADDRESS SEED DIRECTORY
// A server that has its client's key, and lies: DIRECTORY as export "e" on a free port of ADDRESS,
// until it is killed. One message in kHonest goes out changed, in one of the ways below, or does
// not go out, or comes with another that nobody has asked for.
//
// It is the real service and the real acceptor, with a liar between the service and each lane.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "fs/protocol.h"
#include "tests/fs/client/wrapped_connection.h"
#include "tests/server/wrapped_service.h"

namespace rdfs::server {
namespace {

constexpr unsigned kHonest = 40;
constexpr std::size_t kHeaderBytes = sizeof(fs::ReplyHeader);

// A lane, owned and used by one loop.
class Liar final : public fs::client::WrappedConnection {
 public:
  Liar(std::unique_ptr<transport::Connection> inner, std::uint64_t seed)
      : WrappedConnection(std::move(inner)), random_(seed) {}

  Status Send(std::span<const ByteSpan> parts) override {
    std::vector<std::byte> message;
    for (const ByteSpan part : parts) message.insert(message.end(), part.begin(), part.end());
    // How a lane begins is told properly, or there would never be a mount.
    if (++sent_ <= 3 || random_() % kHonest != 0) {
      if (random_() % 4 == 0) answers_[KindOf(message)] = message;
      return WrappedConnection::Send(parts);
    }
    Lie(message);
    if (message.empty()) return {};
    message.resize(std::min(message.size(), transport::kMaxMessageBytes));
    return WrappedConnection::Send({{ByteSpan(message)}});
  }

 private:
  std::size_t Below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  std::byte Byte() { return static_cast<std::byte>(random_()); }
  std::vector<std::byte> Noise(std::size_t size) {
    std::vector<std::byte> bytes(size);
    std::ranges::generate(bytes, [this] { return Byte(); });
    return bytes;
  }
  void Put(std::vector<std::byte>& message, std::size_t at, const auto& value) {
    if (at + sizeof(value) <= message.size()) std::memcpy(&message[at], &value, sizeof(value));
  }

  void Lie(std::vector<std::byte>& message) {
    const std::size_t body = std::min(message.size(), kHeaderBytes);
    const std::size_t anywhere = body + Below(message.size() - body);
    switch (Below(12)) {
      case 0:  // bits of the body
        for (int i = 0; i < 4 && anywhere < message.size(); ++i) {
          message[body + Below(message.size() - body)] ^= std::byte{1} << Below(8);
        }
        break;
      case 1:  // bits of the header
        message[Below(body)] ^= std::byte{1} << Below(8);
        break;
      case 2:  // its end is missing, with or without the header knowing
        message.resize(Below(message.size()));
        if (Below(2) == 0) Measure(message);
        break;
      case 3: {  // more than there is
        const auto more = Noise(1 + Below(5000));
        message.insert(message.end(), more.begin(), more.end());
        if (Below(2) == 0) Measure(message);
        break;
      }
      case 4:  // twice
        (void)WrappedConnection::Send({{ByteSpan(message)}});
        break;
      case 5: {  // one that nobody has asked for
        static constexpr std::array kUnasked = {fs::Opcode::kArena, fs::Opcode::kRecall,
                                                fs::Opcode::kRead, fs::Opcode::kRenew};
        fs::ReplyHeader header{};
        header.opcode = static_cast<std::uint16_t>(kUnasked[Below(kUnasked.size())]);
        auto unasked = Noise(kHeaderBytes + Below(200));
        header.body_bytes = static_cast<std::uint32_t>(unasked.size() - kHeaderBytes);
        Put(unasked, 0, header);
        (void)WrappedConnection::Send({{ByteSpan(unasked)}});
        break;
      }
      case 6:  // an error, known or not
        Put(message, offsetof(fs::ReplyHeader, error), Le16(static_cast<std::uint16_t>(random_())));
        break;
      case 7: {  // numbers at the end of their range
        static constexpr std::array<std::uint64_t, 4> kEnds = {
            0, std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63, 0x7fff'ffff};
        Put(message, anywhere, Le64(kEnds[Below(kEnds.size())]));
        break;
      }
      case 8:  // a length
        Put(message, anywhere, Le16(0xffff));
        break;
      case 9:  // the answer to another request of its kind, with this one's number
        if (const auto other = answers_[KindOf(message)]; !other.empty()) {
          std::vector<std::byte> swapped(message.begin(), message.begin() + kHeaderBytes);
          swapped.insert(swapped.end(), other.begin() + kHeaderBytes, other.end());
          message = std::move(swapped);
          Measure(message);
        }
        break;
      case 10:  // well-formed, and more than was asked for
        if (KindOf(message) == static_cast<std::uint16_t>(fs::Opcode::kRead)) {
          std::vector<std::byte> more(kHeaderBytes + sizeof(fs::ReadReply) + sizeof(Le32));
          std::copy_n(message.begin(), kHeaderBytes, more.begin());
          const auto bytes = Noise(1 + Below(fs::kMaxInlineDataBytes));
          Put(more, more.size() - sizeof(Le32), Le32(static_cast<std::uint32_t>(bytes.size())));
          more.insert(more.end(), bytes.begin(), bytes.end());
          message = std::move(more);
          Measure(message);
        }
        break;
      default:  // silence
        message.clear();
        break;
    }
  }
  static std::uint16_t KindOf(ByteSpan message) {
    return ByteReader(message).Read<fs::ReplyHeader>().opcode;
  }
  static void Measure(std::vector<std::byte>& message) {
    if (message.size() < kHeaderBytes) return;
    const Le32 bytes(static_cast<std::uint32_t>(message.size() - kHeaderBytes));
    std::memcpy(&message[offsetof(fs::ReplyHeader, body_bytes)], &bytes, sizeof(bytes));
  }

  std::mt19937_64 random_;
  std::uint64_t sent_ = 0;
  std::map<std::uint16_t, std::vector<std::byte>> answers_;  // of each kind one that was honest
};

class LyingHost final : public WrappedService {
 public:
  LyingHost(Service& service, std::uint64_t seed) : WrappedService(service), seed_(seed) {}
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<transport::Connection> lane) override {
    WrappedService::OnLane(session_id, context, std::make_unique<Liar>(std::move(lane), ++seed_));
  }

 private:
  std::uint64_t seed_;
};

}  // namespace
}  // namespace rdfs::server

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const rdfs::Status status =
      rdfs::server::ServeWrapped<rdfs::server::LyingHost>(argv[1], argv[3], std::stoull(argv[2]));
  if (!status.ok()) fmt::print(stderr, "liar: {}\n", status.message());
  return 1;
}
