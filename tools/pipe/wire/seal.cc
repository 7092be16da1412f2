#include "tools/pipe/wire/seal.h"

#include <openssl/evp.h>

#include <cstring>
#include <memory>

namespace rdfs::pipe {
namespace {

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

// Four zero bytes and the number: each number is used once under a key.
std::array<unsigned char, 12> NonceOf(std::uint64_t number) {
  std::array<unsigned char, 12> nonce{};
  const Le64 wire(number);
  std::memcpy(&nonce[4], &wire, sizeof wire);
  return nonce;
}

const unsigned char* In(ByteSpan bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* Out(MutableByteSpan bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

Context Start(bool encrypt, const transport::session::Secret32& key, std::uint64_t number,
              ByteSpan bound) {
  Context context(EVP_CIPHER_CTX_new());
  const auto nonce = NonceOf(number);
  int length = 0;
  const bool ready = context != nullptr &&
                     EVP_CipherInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key.data(),
                                       nonce.data(), encrypt ? 1 : 0) == 1 &&
                     EVP_CipherUpdate(context.get(), nullptr, &length, In(bound),
                                      static_cast<int>(bound.size())) == 1;
  return ready ? std::move(context) : nullptr;
}

// OpenSSL's lengths are ints; a slot is at most kMaxSlotBytes.
static_assert(kMaxSlotBytes < 1U << 30U);

}  // namespace

Seal::Seal(const transport::session::Secret32& exporter, Direction direction)
    : key_(transport::session::Expand(exporter.bytes(), direction == Direction::kFromSender
                                                            ? "rdfs pipe 1 sender"
                                                            : "rdfs pipe 1 receiver")) {}

Status Seal::Close(std::uint64_t number, ByteSpan bound, ByteSpan plain, MutableByteSpan sealed,
                   SealTag& tag) const {
  const Context context = Start(true, key_, number, bound);
  int length = 0;
  std::array<unsigned char, 16> rest{};
  const bool done =
      context != nullptr &&
      (plain.empty() || EVP_CipherUpdate(context.get(), Out(sealed), &length, In(plain),
                                         static_cast<int>(plain.size())) == 1) &&
      EVP_CipherFinal_ex(context.get(), rest.data(), &length) == 1 &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag.size()),
                          tag.data()) == 1;
  if (done) return {};
  return {Code::kInternal, "OpenSSL could not encrypt with AES-256-GCM"};
}

Status Seal::Open(std::uint64_t number, ByteSpan bound, ByteSpan sealed, const SealTag& tag,
                  MutableByteSpan plain) const {
  const Context context = Start(false, key_, number, bound);
  int length = 0;
  std::array<unsigned char, 16> rest{};
  SealTag copy = tag;
  const bool done =
      context != nullptr &&
      (sealed.empty() || EVP_CipherUpdate(context.get(), Out(plain), &length, In(sealed),
                                          static_cast<int>(sealed.size())) == 1) &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, static_cast<int>(copy.size()),
                          copy.data()) == 1 &&
      EVP_CipherFinal_ex(context.get(), rest.data(), &length) == 1;
  if (done) return {};
  return {Code::kProtocolError,
          "an encrypted record was changed on the way; nothing of it was used"};
}

}  // namespace rdfs::pipe
