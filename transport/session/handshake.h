// Hello and mutual authentication, without I/O: frames in, frames out. PROTOCOL.md draws it and
// says why it is safe.
//
//   client                                  server
//   ClientHello{nonce, share, key name} ->
//                                        <- ServerHello{nonce, share, TLS or not}
//   ClientConfirm{MAC}                  ->
//                                        <- ServerConfirm{MAC}
//
// Each MAC covers both hellos, byte by byte, so nothing in them can be changed on the way. The
// client confirms first: a server never answers a wrong guess with anything that helps another, and
// always knows that there was one. Without a key the same messages run with an empty password,
// which keeps listeners out and authenticates nobody; each end refuses the other's idea of it.
//
// Owned by one vestibule, used by its thread. Never blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/session/derive.h"
#include "transport/session/frame.h"
#include "transport/session/key.h"
#include "transport/session/messages.h"
#include "transport/session/pake.h"

namespace rdfs::transport::session {

// What makes a run unlike any other; drawn by production, fixed by the golden-byte tests.
struct Randomness {
  Nonce nonce{};
  cpace::Scalar scalar;
  static Randomness Draw();
};

// What both ends agree on when a handshake is done.
struct Agreement {
  Version version;
  std::uint64_t features = 0;
  Encryption encryption = Encryption::kNone;
  std::string key_name;     // at the server: the key that was proved
  Secret32 tls_key;         // of the vestibule's own TLS
  Secret32 session_secret;  // lane tokens, the lanes' TLS keys and the exporter come from it
};

// What upper layers derive keys of their own from.
[[nodiscard]] inline Secret32 ExporterOf(const Agreement& agreement) {
  return Expand(agreement.session_secret.bytes(), "rdfs 1 exporter");
}

class ClientHandshake {
 public:
  struct Options {
    Key key;  // empty: only a server that asks for none
    std::string key_name;
    EncryptionWish encryption_wish = EncryptionWish::kWanted;
  };
  ClientHandshake(Options options, Randomness randomness);

  // Errors: kInvalidArgument (a key name too long).
  Result<std::vector<std::byte>> Start();
  // The next frame of the server's, as it came; returns what to send. An error ends the handshake:
  // what the server refused with, kVersionMismatch, kAuthenticationFailed, kProtocolError.
  Result<std::vector<std::byte>> OnFrame(ByteSpan raw);
  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  [[nodiscard]] const Agreement& agreement() const { return agreement_; }

 private:
  // kStart -> kHello -> kConfirm -> kDone; any error -> kFailed
  enum class State { kStart, kHello, kConfirm, kDone, kFailed };

  Result<std::vector<std::byte>> Step(const Frame& frame, ByteSpan raw);
  Result<std::vector<std::byte>> OnServerHello(const Frame& frame, ByteSpan raw);
  Status OnServerConfirm(ByteSpan body);

  Options options_;
  Randomness randomness_;
  State state_ = State::kStart;
  cpace::Element share_{};
  std::vector<std::byte> hello_;  // as sent
  Mac32 expected_{};              // the server's confirmation
  Agreement agreement_;
};

// What a server knows and allows; outlives the handshakes made with it.
struct ServerPolicy {
  struct Entry {
    std::string name;
    Key key;
  };
  std::vector<Entry> keys;  // empty: no key is asked for
  bool allow_plaintext = true;
  std::string key_advice{};  // behind "wrong key: this server has another one; "
};

class ServerHandshake {
 public:
  // `peer_is_local`: TLS would only cost time (same host, or inside ssh).
  ServerHandshake(const ServerPolicy& policy, bool peer_is_local, Randomness randomness);

  // The next frame of the client's; returns what to send. An error ends the handshake; the caller
  // sends it as a Refusal.
  Result<std::vector<std::byte>> OnFrame(ByteSpan raw);
  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  // The client tried a key and it was not the right one.
  [[nodiscard]] bool wrong_key() const { return wrong_key_; }
  [[nodiscard]] const Agreement& agreement() const { return agreement_; }

 private:
  // kHello -> kConfirm -> kDone; any error -> kFailed
  enum class State { kHello, kConfirm, kDone, kFailed };

  Result<std::vector<std::byte>> Step(const Frame& frame, ByteSpan raw);
  Result<std::vector<std::byte>> OnClientHello(const Frame& frame, ByteSpan raw);
  Result<std::vector<std::byte>> OnClientConfirm(ByteSpan body);
  [[nodiscard]] Status CheckWishes(const ClientHello& hello) const;
  [[nodiscard]] Encryption Decide(EncryptionWish wish) const;
  [[nodiscard]] Key KeyFor(const std::string& name);

  const ServerPolicy& policy_;
  bool peer_is_local_;
  Randomness randomness_;
  State state_ = State::kHello;
  bool wrong_key_ = false;
  Mac32 expected_{};  // the client's confirmation
  Mac32 answer_{};    // ours
  Agreement agreement_;
};

}  // namespace rdfs::transport::session
