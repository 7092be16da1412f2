// What is read before there is a session: the first bytes of a tcp lane, the private data of a
// verbs connect, the lines that ssh carries, and addresses as people and peers write them.
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "transport/ssh/bootstrap.h"
#include "transport/ssh/launch.h"
#include "transport/tcp/preface.h"
#include "transport/transport.h"
#include "transport/verbs/private_data.h"

namespace rdfs::fuzz {
namespace {

using namespace transport;

template <WireStruct T>
T As(ByteSpan input) {
  return Pieces(input).Read<T>();
}

void CheckVerdict(ByteSpan input) {
  const auto verdict = As<tcp::Verdict>(input);
  const auto words = tcp::CheckVerdict(verdict);
  if (!words.ok()) return;
  Require(*words <= tcp::kMaxVerdictWords, "the words are bounded");
  (void)tcp::VerdictStatus(verdict, AsText(input.subspan(std::min(input.size(), sizeof(verdict)))));
}

void CheckVerbs(ByteSpan input) {
  if (const auto token = verbs::DecodeConnect(input)) {
    Require(token->size() <= kMaxTokenBytes, "a token is bounded");
    const auto data = verbs::EncodeConnect(*token);
    const ByteSpan bytes = std::as_bytes(std::span(&data, 1));
    Require(Equal(bytes.first(token->size() + 1), input.first(token->size() + 1)), "token");
  }
  if (const auto why = verbs::DecodeReject(input)) Require(!why->ok(), "a rejection is an error");
}

void CheckRequestLine(ByteSpan input) {
  const auto request = ssh::ParseBootstrapRequest("RDFS1", AsText(input));
  if (!request.ok()) return;
  Require(request->key.size() == ssh::kBootstrapKeyDigits, "the key's length");
  const std::string line = ssh::EncodeBootstrapRequest("RDFS1", *request);
  const auto again =
      ssh::ParseBootstrapRequest("RDFS1", std::string_view(line).substr(0, line.size() - 1));
  Require(again.ok() && again->text == request->text && again->key == request->key, "the line");
}

void CheckEndpoint(ByteSpan input) {
  const auto endpoint = Endpoint::Parse(AsText(input));
  if (endpoint.ok()) {
    const auto again = Endpoint::Parse(endpoint->ToString());
    Require(again.ok() && again->host == endpoint->host && again->port == endpoint->port,
            "an endpoint is read as it is written");
  }
  (void)HostAndPort::Parse(AsText(input), 7337);
}

}  // namespace

void Run(ByteSpan input) {
  if (input.empty()) return;
  const ByteSpan rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 7) {
    case 0: {
      const auto token = tcp::CheckPreface(As<tcp::Preface>(rest));
      return Require(!token.ok() || *token <= kMaxTokenBytes, "a token is bounded");
    }
    case 1:
      return CheckVerdict(rest);
    case 2:
      return CheckVerbs(rest);
    case 3:
      return CheckRequestLine(rest);
    case 4:
      (void)ssh::ParseBootstrapReply("RDFS1", AsText(rest));
      return;
    case 5:
      (void)ssh::ParseSshHostname(AsText(rest));
      return;
    default:
      return CheckEndpoint(rest);
  }
}

std::vector<Bytes> Seeds() {
  const auto connect = verbs::EncodeConnect(AsBytes("a token"));
  const auto reject = verbs::EncodeReject({Code::kBusy, "later"});
  const std::string key(ssh::kBootstrapKeyDigits, 'a');
  std::string line = ssh::EncodeBootstrapRequest("RDFS1", {key, "/home/a b"});
  line.pop_back();
  const std::string refusal =
      ssh::EncodeBootstrapReply("RDFS1", {Code::kUnavailable, "there is no such folder"});
  return {Of(0, AsBytes(tcp::EncodePreface(AsBytes("a token")))),
          Of(1, AsBytes(tcp::EncodeVerdict({Code::kBusy, "later"}))),
          Of(2, std::as_bytes(std::span(&connect, 1))),
          Of(2, std::as_bytes(std::span(&reject, 1))),
          Of(3, AsBytes(line)),
          Of(4, AsBytes(std::string_view(refusal).substr(1, refusal.size() - 2))),
          Of(5, AsBytes("user me\nhostname 10.0.0.1\nport 22\n")),
          Of(6, AsBytes("verbs://[::1]:7337")),
          Of(6, AsBytes("shm:///name"))};
}

}  // namespace rdfs::fuzz
