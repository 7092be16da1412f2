#include "transport/session/handshake.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "transport/base/random.h"

namespace rdfs::transport::session {
namespace {

constexpr std::string_view kClientRole = "rdfs client";
constexpr std::string_view kServerRole = "rdfs server";

// CPace's channel identifier: who is who, so that no message of one role serves as the other's.
std::vector<std::byte> Channel() {
  return cpace::Concatenate({AsBytes(kClientRole), AsBytes(kServerRole)});
}

struct Keys {
  Mac32 client_mac{}, server_mac{};
  Secret32 tls_key, session_secret;
};

// Everything that follows from the shared key and the two hellos. Each key has its own label, and
// the transcript is HKDF's salt: ends that saw different hellos derive nothing in common.
Keys Derive(const cpace::SharedKey& shared, ByteSpan client_hello, ByteSpan server_hello) {
  const Hash64 transcript = Sha512(client_hello, server_hello);
  const Secret64 root = Extract(transcript, shared.bytes());
  const Secret32 client_key = Expand(root.bytes(), "rdfs 1 client confirm");
  const Secret32 server_key = Expand(root.bytes(), "rdfs 1 server confirm");
  Keys keys;
  keys.client_mac = MacOf(client_key, kClientRole, transcript);
  keys.server_mac = MacOf(server_key, kServerRole, transcript, keys.client_mac);
  keys.tls_key = Expand(root.bytes(), "rdfs 1 tls");
  keys.session_secret = Expand(root.bytes(), "rdfs 1 session");
  return keys;
}

Status Unexpected() { return {Code::kProtocolError, "the peer sent a message out of turn"}; }

Status UnknownFeatures(std::string_view who) {
  return {Code::kVersionMismatch, std::string(who) +
                                      " needs a feature that the other end does not have: install "
                                      "the same release on both machines"};
}

Version LowerOf(Version mine, Version theirs) {
  return {mine.major, std::min(mine.minor, theirs.minor)};
}

// What a server's refusal means to the user at the client.
Status FromRefusal(ByteSpan body) {
  Refusal refusal;
  RDFS_RETURN_IF_ERROR(Refusal::Decode(body, refusal));
  if (refusal.version.major == kMajor) return refusal.why;
  return {Code::kVersionMismatch, "this rdfs speaks protocol " + ToString(Version{}) +
                                      ", the server " + ToString(refusal.version) +
                                      ": install the same release on both machines"};
}

Result<Frame> Parse(ByteSpan raw) {
  FrameReader reader(kMaxHandshakeBody);
  ByteSpan rest = raw;
  for (;;) {
    const MutableByteSpan wanted = reader.Wanted();
    if (wanted.size() > rest.size()) {
      return Status(Code::kProtocolError, "the peer sent a truncated message");
    }
    std::ranges::copy(rest.first(wanted.size()), wanted.begin());
    rest = rest.subspan(wanted.size());
    RDFS_ASSIGN_OR_RETURN(const bool whole, reader.Filled(wanted.size()));
    if (whole) break;
  }
  return Frame{reader.frame().type, raw.subspan(sizeof(FrameHeader))};
}

}  // namespace

Randomness Randomness::Draw() {
  Randomness out;
  FillRandom(out.nonce);
  out.scalar = cpace::RandomScalar();
  return out;
}

ClientHandshake::ClientHandshake(Options options, Randomness randomness)
    : options_(std::move(options)), randomness_(std::move(randomness)) {}

Result<std::vector<std::byte>> ClientHandshake::Start() {
  if (options_.key_name.size() > kMaxKeyName) {
    return Status(Code::kInvalidArgument, "the name of a key has at most 64 bytes");
  }
  ClientHello hello;
  hello.authentication = options_.key.empty() ? Authentication::kNone : Authentication::kKey;
  hello.encryption_wish = options_.encryption_wish;
  hello.key_name = options_.key_name;
  hello.nonce = randomness_.nonce;
  // The client's nonce is CPace's session id; the server's enters by the transcript.
  RDFS_ASSIGN_OR_RETURN(hello.share, cpace::Share(randomness_.scalar,
                                                  cpace::Generator(options_.key.bytes(), Channel(),
                                                                   randomness_.nonce)));
  share_ = hello.share;
  hello_ = EncodeFrame(FrameType::kClientHello, hello.Encode());
  state_ = State::kHello;
  return hello_;
}

Result<std::vector<std::byte>> ClientHandshake::OnFrame(ByteSpan raw) {
  auto frame = Parse(raw);
  auto out =
      frame.ok() ? Step(*frame, raw) : Result<std::vector<std::byte>>(std::move(frame).status());
  if (!out.ok()) state_ = State::kFailed;
  return out;
}

Result<std::vector<std::byte>> ClientHandshake::Step(const Frame& frame, ByteSpan raw) {
  if (frame.type == FrameType::kRefused) return FromRefusal(frame.body);
  if (state_ == State::kHello && frame.type == FrameType::kServerHello) {
    return OnServerHello(frame, raw);
  }
  if (state_ == State::kConfirm && frame.type == FrameType::kServerConfirm) {
    RDFS_RETURN_IF_ERROR(OnServerConfirm(frame.body));
    state_ = State::kDone;
    return std::vector<std::byte>{};
  }
  return Unexpected();
}

Result<std::vector<std::byte>> ClientHandshake::OnServerHello(const Frame& frame, ByteSpan raw) {
  ServerHello hello;
  RDFS_RETURN_IF_ERROR(ServerHello::Decode(frame.body, hello));
  const bool with_key = !options_.key.empty();
  if (with_key && hello.authentication == Authentication::kNone) {
    return Status(Code::kAuthenticationFailed,
                  "this server asks for no key, so it cannot prove that it is the one you mean: "
                  "connect without a key, or start the server with one");
  }
  if (!with_key && hello.authentication == Authentication::kKey) {
    return Status(Code::kAuthenticationFailed,
                  "this server asks for a key: copy its key file here, mode 0600, and give it with "
                  "-o key_file=FILE or --key-file FILE");
  }
  if (options_.encryption_wish == EncryptionWish::kWanted &&
      hello.encryption == Encryption::kNone) {
    return Status(Code::kProtocolError, "the server did not agree to encrypt");
  }
  if ((hello.features & ~kKnownFeatures) != 0) return UnknownFeatures("the server");
  RDFS_ASSIGN_OR_RETURN(const Secret32 point, cpace::SharedPoint(randomness_.scalar, hello.share));
  const Keys keys = Derive(
      cpace::SessionKey(randomness_.nonce, point, {share_, {}}, {hello.share, {}}), hello_, raw);
  expected_ = keys.server_mac;
  agreement_ = {LowerOf(Version{}, hello.version),
                hello.features,
                hello.encryption,
                options_.key_name,
                keys.tls_key,
                keys.session_secret};
  state_ = State::kConfirm;
  return EncodeFrame(FrameType::kClientConfirm, keys.client_mac);
}

Status ClientHandshake::OnServerConfirm(ByteSpan body) {
  if (EqualInConstantTime(body, expected_)) return Status::Ok();
  return {Code::kAuthenticationFailed,
          "the server did not prove the key: it is not the one you mean, or somebody is between"};
}

ServerHandshake::ServerHandshake(const ServerPolicy& policy, bool peer_is_local,
                                 Randomness randomness)
    : policy_(policy), peer_is_local_(peer_is_local), randomness_(std::move(randomness)) {}

Result<std::vector<std::byte>> ServerHandshake::OnFrame(ByteSpan raw) {
  auto frame = Parse(raw);
  auto out =
      frame.ok() ? Step(*frame, raw) : Result<std::vector<std::byte>>(std::move(frame).status());
  if (!out.ok()) state_ = State::kFailed;
  return out;
}

Result<std::vector<std::byte>> ServerHandshake::Step(const Frame& frame, ByteSpan raw) {
  if (state_ == State::kHello && frame.type == FrameType::kClientHello) {
    return OnClientHello(frame, raw);
  }
  if (state_ == State::kConfirm && frame.type == FrameType::kClientConfirm) {
    return OnClientConfirm(frame.body);
  }
  return Unexpected();
}

Status ServerHandshake::CheckWishes(const ClientHello& hello) const {
  const bool asks_for_key = !policy_.keys.empty();
  if (asks_for_key && hello.authentication == Authentication::kNone) {
    return {Code::kAuthenticationFailed,
            "this server asks for a key: copy its key file here, mode 0600, and give it with "
            "-o key_file=FILE or --key-file FILE"};
  }
  if (!asks_for_key && hello.authentication == Authentication::kKey) {
    return {Code::kAuthenticationFailed,
            "this server asks for no key, so it cannot prove that it is the one you mean: connect "
            "without a key, or start the server with one"};
  }
  if ((hello.required_features & ~kKnownFeatures) != 0) return UnknownFeatures("the client");
  if (hello.encryption_wish == EncryptionWish::kPlaintextAsked && !peer_is_local_ &&
      !policy_.allow_plaintext) {
    return {Code::kUnsupported, "this server does not allow plaintext: ask for encryption"};
  }
  return Status::Ok();
}

Encryption ServerHandshake::Decide(EncryptionWish wish) const {
  if (wish == EncryptionWish::kWanted) return Encryption::kTls;
  if (wish == EncryptionWish::kPlaintextAsked || peer_is_local_) return Encryption::kNone;
  return Encryption::kTls;
}

Key ServerHandshake::KeyFor(const std::string& name) {
  if (policy_.keys.empty()) return Key();
  if (name.empty()) {
    agreement_.key_name = policy_.keys.front().name;
    return policy_.keys.front().key;
  }
  for (const ServerPolicy::Entry& entry : policy_.keys) {
    if (entry.name != name) continue;
    agreement_.key_name = entry.name;
    return entry.key;
  }
  return Key::Random();  // fails like a wrong key: which names exist is nobody's business
}

Result<std::vector<std::byte>> ServerHandshake::OnClientHello(const Frame& frame, ByteSpan raw) {
  ClientHello hello;
  RDFS_RETURN_IF_ERROR(ClientHello::Decode(frame.body, hello));
  RDFS_RETURN_IF_ERROR(CheckWishes(hello));
  ServerHello answer;
  answer.features = (hello.required_features | hello.optional_features) & kKnownFeatures;
  answer.authentication = hello.authentication;
  answer.encryption = Decide(hello.encryption_wish);
  answer.nonce = randomness_.nonce;
  const Key key = KeyFor(hello.key_name);
  RDFS_ASSIGN_OR_RETURN(
      answer.share,
      cpace::Share(randomness_.scalar, cpace::Generator(key.bytes(), Channel(), hello.nonce)));
  RDFS_ASSIGN_OR_RETURN(const Secret32 point, cpace::SharedPoint(randomness_.scalar, hello.share));
  std::vector<std::byte> out = EncodeFrame(FrameType::kServerHello, answer.Encode());
  const Keys keys = Derive(
      cpace::SessionKey(hello.nonce, point, {hello.share, {}}, {answer.share, {}}), raw, out);
  expected_ = keys.client_mac;
  answer_ = keys.server_mac;
  agreement_.version = LowerOf(Version{}, hello.version);
  agreement_.features = answer.features;
  agreement_.encryption = answer.encryption;
  agreement_.tls_key = keys.tls_key;
  agreement_.session_secret = keys.session_secret;
  state_ = State::kConfirm;
  return out;
}

Result<std::vector<std::byte>> ServerHandshake::OnClientConfirm(ByteSpan body) {
  if (!EqualInConstantTime(body, expected_)) {
    if (policy_.keys.empty()) {
      return Status(Code::kProtocolError, "the hello was changed on its way: somebody is between");
    }
    wrong_key_ = true;
    return Status(Code::kAuthenticationFailed,
                  "wrong key: this server has another one; " + policy_.key_advice);
  }
  state_ = State::kDone;
  return EncodeFrame(FrameType::kServerConfirm, answer_);
}

}  // namespace rdfs::transport::session
