// The messages of a session: what peers say before and after they have proved who they are.
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "transport/session/frame.h"
#include "transport/session/lane_token.h"
#include "transport/session/messages.h"

namespace rdfs::fuzz {
namespace {

using namespace transport::session;

template <typename Message>
void Check(ByteSpan input, std::string_view what) {
  const auto decode = [](ByteSpan bytes) -> Result<Message> {
    Message message;
    RDFS_RETURN_IF_ERROR(Message::Decode(bytes, message));
    return message;
  };
  Stable(
      input, decode, [](const Message& message) { return message.Encode(); }, what);
}

void CheckRefusal(ByteSpan input) {
  Refusal refusal;
  if (!Refusal::Decode(input, refusal).ok()) return;
  Require(!refusal.why.ok(), "a refusal is an error");
  for (const char c : refusal.why.message()) {
    Require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a terminal may show it");
  }
}

// Frames as they come, in any pieces: how many there are does not depend on the pieces.
std::size_t CountFrames(ByteSpan input, std::size_t step) {
  FrameReader reader(kMaxHandshakeBody);
  std::size_t frames = 0;
  while (!input.empty()) {
    const MutableByteSpan wanted = reader.Wanted();
    Require(!wanted.empty(), "an unfinished frame wants bytes");
    const std::size_t count = std::min({wanted.size(), input.size(), step});
    std::memcpy(wanted.data(), input.data(), count);
    input = input.subspan(count);
    const auto whole = reader.Filled(count);
    if (!whole.ok()) return frames;
    if (!*whole) continue;
    Require(reader.frame().body.size() <= kMaxHandshakeBody, "a frame is bounded");
    ++frames;
    reader.Next();
  }
  return frames;
}

void CheckToken(ByteSpan input) {
  const auto claim = ParseLaneToken(input);
  Secret32 secret;
  const bool genuine = claim.ok() && VerifyLaneToken(input, secret);
  if (genuine) Require(Equal(IssueLaneToken(*claim, secret), input), "a token has one form");
}

}  // namespace

void Run(ByteSpan input) {
  if (input.empty()) return;
  const ByteSpan rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 7) {
    case 0:
      return Check<ClientHello>(rest, "a client's hello is stable");
    case 1:
      return Check<ServerHello>(rest, "a server's hello is stable");
    case 2:
      return Check<SessionOpen>(rest, "a session's request is stable");
    case 3:
      return Check<SessionGrant>(rest, "a session's grant is stable");
    case 4:
      return CheckRefusal(rest);
    case 5:
      return CheckToken(rest);
    default:
      Require(CountFrames(rest, 1) == CountFrames(rest, rest.size()), "pieces do not matter");
  }
}

std::vector<Bytes> Seeds() {
  ClientHello client;
  client.authentication = Authentication::kKey;
  client.key_name = "backup";
  SessionOpen open;
  open.service = "fs";
  open.request = Bytes(10, std::byte{7});
  SessionGrant grant;
  grant.session_id = 42;
  grant.offers = {{transport::Kind::kShm, true, 0, "name", ""},
                  {transport::Kind::kVerbs, false, 0, "", "no device"}};
  grant.grant = Bytes(5, std::byte{9});
  const auto token = IssueLaneToken({transport::Kind::kShm, 42, 1}, Secret32());
  Bytes frames = EncodeFrame(FrameType::kClientHello, client.Encode());
  Put(frames, EncodeFrame(FrameType::kClientConfirm, Bytes(32)));
  return {Of(0, client.Encode()),
          Of(1, ServerHello().Encode()),
          Of(2, open.Encode()),
          Of(3, grant.Encode()),
          Of(4, Refusal{{}, {Code::kBusy, "later"}}.Encode()),
          Of(5, token),
          Of(6, frames)};
}

}  // namespace rdfs::fuzz
