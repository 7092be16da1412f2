// Both ends of the handshake against a peer that sends anything, and CPace against any share:
// nobody comes through without the key.
#include <algorithm>
#include <memory>

#include "tests/fuzz/fuzz.h"
#include "transport/session/frame.h"
#include "transport/session/handshake.h"
#include "transport/session/pake.h"

namespace rdfs::fuzz {
namespace {

using namespace transport::session;

const ServerPolicy& Policy() {
  static const ServerPolicy policy{{{"default", transport::Key("sesame")}}, true};
  return policy;
}

// The same in each run, or a finding could not be seen again.
Randomness Fixed(std::byte fill) {
  Randomness randomness;
  randomness.nonce.fill(fill);
  randomness.scalar.bytes()[0] = fill;
  return randomness;
}

template <typename End>
void Feed(End& end, Pieces& frames) {
  while (!frames.empty()) {
    const auto type = static_cast<FrameType>(frames.Byte());
    if (!end.OnFrame(EncodeFrame(type, frames.Next())).ok()) break;
  }
  Require(!end.done(), "nobody comes through without the key");
}

void CheckShare(ByteSpan input) {
  cpace::Element share{};
  std::memcpy(share.data(), input.data(), std::min(share.size(), input.size()));
  const auto point = cpace::SharedPoint(Fixed(std::byte{3}).scalar, share);
  const Secret32 zero;
  if (point.ok()) Require(!EqualInConstantTime(point->bytes(), zero.bytes()), "not neutral");
}

}  // namespace

void Run(ByteSpan input) {
  if (input.empty()) return;
  Pieces pieces(input.subspan(1));
  switch (std::to_integer<int>(input[0]) % 3) {
    case 0: {
      ServerHandshake server(Policy(), false, Fixed(std::byte{1}));
      return Feed(server, pieces);
    }
    case 1: {
      ClientHandshake client({transport::Key("sesame"), "", EncryptionWish::kWanted},
                             Fixed(std::byte{2}));
      if (client.Start().ok()) Feed(client, pieces);
      return;
    }
    default:
      CheckShare(input.subspan(1));
  }
}

std::vector<Bytes> Seeds() {
  // A whole run, as each end hears it, but for the last word.
  ServerHandshake server(Policy(), false, Fixed(std::byte{1}));
  ClientHandshake client({transport::Key("sesame"), "", EncryptionWish::kWanted},
                         Fixed(std::byte{2}));
  const auto add = [](Bytes& out, ByteSpan raw) {
    out.push_back(raw[4]);  // the type
    PutSized16(out, raw.subspan(sizeof(FrameHeader)));
  };
  Bytes to_server{std::byte{0}}, to_client{std::byte{1}};
  const auto hello = client.Start();
  add(to_server, *hello);
  const auto answer = server.OnFrame(*hello);
  add(to_client, *answer);
  Bytes share{std::byte{2}};
  Put(share, *cpace::Share(Fixed(std::byte{5}).scalar,
                           cpace::Generator(AsBytes("sesame"), {}, AsBytes("id"))));
  Bytes wrong = to_server;
  add(wrong, EncodeFrame(FrameType::kClientConfirm, Bytes(32)));
  return {to_server, to_client, share, wrong};
}

}  // namespace rdfs::fuzz
