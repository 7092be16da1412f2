// Frames of the verbs transport as a queue pair would deliver them: messages put together from
// pieces, and credits.
#include "tests/fuzz/fuzz.h"
#include "transport/verbs/credit.h"
#include "transport/verbs/reassembler.h"

namespace rdfs::fuzz {

using namespace transport;
using namespace transport::verbs;

// A frame in an input: its header, then a byte for how long the payload is (255: full), and that.
void Run(ByteSpan input) {
  Pieces pieces(input);
  Reassembler reassembler;
  CreditLedger credits(64, kOpeningCredits);
  if (!credits.OnOpening(pieces.Read<Le16>())) return;
  const std::uint32_t all = credits.available() + credits.used();
  Bytes payload(kMaxPayloadBytes);
  while (!pieces.empty()) {
    const auto header = pieces.Read<FrameHeader>();
    const std::size_t length = pieces.Byte();
    const ByteSpan bytes = length == 255 ? ByteSpan(payload) : pieces.Span(length);
    credits.OnFrame(header.credits);
    credits.OnReposted(1);
    if (credits.can_send()) Require(credits.TakeForFrame() <= 64, "credits are posted receives");
    Require(credits.available() + credits.used() == all, "credits come from nowhere else");
    const auto message = reassembler.Add(header, bytes);
    if (!message.ok()) return;
    if (!*message) continue;
    Require((*message)->bytes.size() <= kMaxMessageBytes, "a message is bounded");
    Require((*message)->bytes.size() == header.message_bytes, "a message is as long as it said");
  }
}

std::vector<Bytes> Seeds() {
  const auto frame = [](Bytes& out, FrameType type, std::uint32_t total, std::size_t length) {
    Put(out, FrameHeader{static_cast<std::uint8_t>(type), 0, Le16(1), Le32(total)});
    out.push_back(static_cast<std::byte>(std::min<std::size_t>(length, 255)));
    if (length < 255) out.resize(out.size() + length);
  };
  Bytes small, large;
  Put(small, Le16(64));
  frame(small, FrameType::kMessage, 5, 5);
  frame(small, FrameType::kMessage, 0, 0);
  Put(large, Le16(1024));
  frame(large, FrameType::kMessage, kMaxPayloadBytes + 10, 255);
  frame(large, FrameType::kContinuation, kMaxPayloadBytes + 10, 10);
  return {small, large};
}

}  // namespace rdfs::fuzz
