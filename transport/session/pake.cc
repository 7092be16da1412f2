#include "transport/session/pake.h"

#include <sodium.h>

#include <algorithm>
#include <string_view>

#include "transport/base/random.h"

namespace rdfs::transport::session::cpace {
namespace {

constexpr std::string_view kDomain = "CPaceRistretto255";
constexpr std::string_view kKeyDomain = "CPaceRistretto255_ISK";
constexpr std::size_t kHashBlockBytes = 128;  // SHA-512's input block
static_assert(crypto_core_ristretto255_BYTES == kElementBytes);
static_assert(crypto_core_ristretto255_SCALARBYTES == Scalar::size());
static_assert(crypto_core_ristretto255_HASHBYTES == sizeof(Hash64));

const unsigned char* Raw(const Element& element) {
  return reinterpret_cast<const unsigned char*>(element.data());
}
unsigned char* Raw(Element& element) { return reinterpret_cast<unsigned char*>(element.data()); }

void AppendWithLength(std::vector<std::byte>& out, ByteSpan part) {
  std::size_t length = part.size();
  do {
    const std::size_t low = length & 0x7fU;
    length >>= 7U;
    out.push_back(static_cast<std::byte>(length != 0 ? low | 0x80U : low));
  } while (length != 0);
  out.insert(out.end(), part.begin(), part.end());
}

std::size_t SizeWithLength(std::size_t size) {
  std::size_t prefix = 1;
  for (std::size_t rest = size >> 7U; rest != 0; rest >>= 7U) ++prefix;
  return prefix + size;
}

}  // namespace

std::vector<std::byte> Concatenate(std::initializer_list<ByteSpan> parts) {
  std::size_t total = 0;
  for (const ByteSpan part : parts) total += SizeWithLength(part.size());
  std::vector<std::byte> out;
  out.reserve(total);  // grown once only: an outgrown buffer would keep secrets on the heap
  for (const ByteSpan part : parts) AppendWithLength(out, part);
  return out;
}

std::vector<std::byte> GeneratorString(ByteSpan password, ByteSpan channel, ByteSpan session_id) {
  const std::size_t before = SizeWithLength(kDomain.size()) + SizeWithLength(password.size());
  // One byte less than the rest of the block: the pad's own length takes it.
  const std::size_t pad = before + 1 < kHashBlockBytes ? kHashBlockBytes - 1 - before : 0;
  constexpr std::array<std::byte, kHashBlockBytes> kZeroes{};
  return Concatenate(
      {AsBytes(kDomain), password, ByteSpan(kZeroes).first(pad), channel, session_id});
}

Element Generator(ByteSpan password, ByteSpan channel, ByteSpan session_id) {
  std::vector<std::byte> text = GeneratorString(password, channel, session_id);
  Hash64 hash = Sha512(text);
  Element out{};
  crypto_core_ristretto255_from_hash(Raw(out), reinterpret_cast<const unsigned char*>(hash.data()));
  Wipe(text);
  Wipe(hash);
  return out;
}

Scalar RandomScalar() {
  Scalar scalar;
  do {
    FillRandom(scalar.bytes());
    // 252 bits: below the group's order (2^252 + ...), as the draft samples them.
    scalar.bytes().back() &= std::byte{0x0f};
  } while (sodium_is_zero(scalar.data(), scalar.size()) != 0);
  return scalar;
}

Result<Element> Share(const Scalar& scalar, const Element& generator) {
  Element out{};
  if (crypto_scalarmult_ristretto255(Raw(out), scalar.data(), Raw(generator)) != 0) {
    return Status(Code::kInternal, "the key exchange drew a scalar that it cannot use");
  }
  return out;
}

Result<Secret32> SharedPoint(const Scalar& scalar, const Element& peer_share) {
  Secret32 out;
  // libsodium refuses encodings that are not canonical and a neutral result alike.
  if (crypto_scalarmult_ristretto255(out.data(), scalar.data(), Raw(peer_share)) != 0) {
    return Status(Code::kProtocolError, "the peer sent a key exchange share that is not valid");
  }
  return out;
}

SharedKey SessionKey(ByteSpan session_id, const Secret32& point, const Side& initiator,
                     const Side& responder) {
  std::vector<std::byte> secret = Concatenate({AsBytes(kKeyDomain), session_id, point.bytes()});
  const std::vector<std::byte> transcript =
      Concatenate({initiator.share, initiator.associated, responder.share, responder.associated});
  Hash64 hash = Sha512(secret, transcript);
  SharedKey out;
  std::ranges::copy(hash, out.bytes().begin());
  Wipe(secret);
  Wipe(hash);
  return out;
}

}  // namespace rdfs::transport::session::cpace
