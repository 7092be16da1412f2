#include "transport/tcp/preface.h"

#include "transport/base/printable.h"

namespace rdfs::transport::tcp {
namespace {

template <WireStruct T>
std::string TextOf(const T& value) {
  return std::string(AsText(std::as_bytes(std::span<const T, 1>(&value, 1))));
}

Status CheckMagic(std::uint32_t magic, std::uint8_t version) {
  if (magic != kPrefaceMagic) {
    return {Code::kProtocolError, "the other end does not speak the tcp transport of rdfs"};
  }
  if (version != kPrefaceVersion) {
    return {Code::kVersionMismatch, "the other end speaks version " + std::to_string(version) +
                                        " of the tcp transport, this one version " +
                                        std::to_string(kPrefaceVersion)};
  }
  return {};
}

// A code that the peer sent; one that is not ours is a refusal all the same.
Code CodeFromWire(std::uint8_t code) {
  const Code out = static_cast<Code>(code);
  return CodeName(out) == "unknown" || out == Code::kOk ? Code::kProtocolError : out;
}

}  // namespace

Result<std::size_t> CheckPreface(const Preface& preface) {
  RDFS_RETURN_IF_ERROR(CheckMagic(preface.magic, preface.version));
  if (preface.token_bytes > kMaxTokenBytes || preface.reserved != 0) {
    return Status(Code::kProtocolError, "a token of an impossible length");
  }
  return std::size_t{preface.token_bytes};
}

Result<std::size_t> CheckVerdict(const Verdict& verdict) {
  RDFS_RETURN_IF_ERROR(CheckMagic(verdict.magic, verdict.version));
  if (verdict.words_bytes > kMaxVerdictWords) {
    return Status(Code::kProtocolError, "a refusal of an impossible length");
  }
  return std::size_t{verdict.words_bytes};
}

std::string EncodePreface(ByteSpan token) {
  return TextOf(Preface{.magic = kPrefaceMagic,
                        .version = kPrefaceVersion,
                        .token_bytes = static_cast<std::uint8_t>(token.size()),
                        .reserved = 0}) +
         std::string(AsText(token));
}

std::string EncodeVerdict(const Status& status) {
  const std::string words = status.message().substr(0, kMaxVerdictWords);
  return TextOf(Verdict{.magic = kPrefaceMagic,
                        .version = kPrefaceVersion,
                        .code = static_cast<std::uint8_t>(status.code()),
                        .words_bytes = static_cast<std::uint16_t>(words.size())}) +
         words;
}

Status VerdictStatus(const Verdict& verdict, std::string_view words) {
  if (static_cast<Code>(std::uint8_t{verdict.code}) == Code::kOk) return {};
  return {CodeFromWire(verdict.code), Printable(words)};
}

}  // namespace rdfs::transport::tcp
