// The messages of hello and authentication, and of a session behind them. PROTOCOL.md draws how
// they follow each other; messages_test.cc holds every byte of them.
//
// All integers little-endian, structs without padding. The first eight bytes of a hello and of a
// refusal (magic, major, minor) are the same in every version there will ever be. Decoding checks
// every length and leaves its output alone on failure. Values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/status.h"
#include "transport/session/pake.h"
#include "transport/transport.h"

namespace rdfs::transport::session {

inline constexpr std::array<char, 4> kMagic = {'R', 'D', 'F', 'S'};
// Peers of one major version understand each other; the lower minor is in force.
inline constexpr std::uint16_t kMajor = 1;
inline constexpr std::uint16_t kMinor = 0;

// Feature bits. A peer refuses a required bit that it does not know and ignores an optional one.
inline constexpr std::uint64_t kFeatureStreamLane = 1;  // the vestibule can become a lane
inline constexpr std::uint64_t kKnownFeatures = kFeatureStreamLane;

inline constexpr std::size_t kMaxKeyName = 64;
inline constexpr std::size_t kMaxService = 64;
inline constexpr std::size_t kMaxOpening = 4096;  // the upper layers' request and grant
inline constexpr std::size_t kMaxSentence = 512;
inline constexpr std::size_t kMaxExtensions = 1024;
inline constexpr std::size_t kMaxSocketName = 107;  // sun_path less the leading zero (unix(7))
inline constexpr std::size_t kMaxOffers = 8;

// What a peer's number of transport/base/status.h stands for; kProtocolError when it is none.
Code CodeOfPeer(std::uint16_t number);

using Nonce = std::array<std::byte, 32>;

enum class Authentication : std::uint8_t { kNone = 0, kKey = 1 };
// The client's word about TLS, and the server's decision.
enum class EncryptionWish : std::uint8_t { kNotNeeded = 0, kWanted = 1, kPlaintextAsked = 2 };
enum class Encryption : std::uint8_t { kNone = 0, kTls = 1 };

struct Version {
  std::uint16_t major = kMajor;
  std::uint16_t minor = kMinor;
};
std::string ToString(Version version);  // "1.0"

struct VersionPrefix {
  std::array<char, 4> magic;
  Le16 major, minor;
};
static_assert(sizeof(VersionPrefix) == 8);

struct ClientHelloWire {
  VersionPrefix prefix;
  Le64 required_features, optional_features;
  Le32 max_message_bytes;  // of a session message that this end takes; 16 KiB at least
  std::uint8_t authentication, encryption_wish;
  Le16 reserved;
  Nonce nonce;
  cpace::Element share;
  // Le16 + key name, Le16 + extensions
};
static_assert(sizeof(ClientHelloWire) == 96 && alignof(ClientHelloWire) == 1);

struct ServerHelloWire {
  VersionPrefix prefix;
  Le64 features;
  Le32 max_message_bytes;
  std::uint8_t authentication, encryption;
  Le16 reserved;
  Nonce nonce;
  cpace::Element share;
  // Le16 + extensions
};
static_assert(sizeof(ServerHelloWire) == 88 && alignof(ServerHelloWire) == 1);

struct ClientHello {
  Version version;
  std::uint64_t required_features = 0;
  std::uint64_t optional_features = kKnownFeatures;
  std::uint32_t max_message_bytes = kMaxSessionBytes;
  Authentication authentication = Authentication::kNone;
  EncryptionWish encryption_wish = EncryptionWish::kNotNeeded;
  Nonce nonce{};
  cpace::Element share{};
  std::string key_name;

  static constexpr std::uint32_t kMaxSessionBytes = 16 * 1024;
  [[nodiscard]] std::vector<std::byte> Encode() const;
  // kVersionMismatch when only the prefix is understood: `version` is set then.
  static Status Decode(ByteSpan body, ClientHello& out);
};

struct ServerHello {
  Version version;
  std::uint64_t features = 0;
  std::uint32_t max_message_bytes = ClientHello::kMaxSessionBytes;
  Authentication authentication = Authentication::kNone;
  Encryption encryption = Encryption::kNone;
  Nonce nonce{};
  cpace::Element share{};

  [[nodiscard]] std::vector<std::byte> Encode() const;
  static Status Decode(ByteSpan body, ServerHello& out);
};

// The end of a stream, and why. Only code and sentence travel: never a host's errno.
struct Refusal {
  Version version;
  Status why;

  [[nodiscard]] std::vector<std::byte> Encode() const;
  static Status Decode(ByteSpan body, Refusal& out);
};

// Two processes with equal values are on one host and see one network.
struct HostIdentity {
  std::array<std::byte, 16> boot_id{};  // zero: unknown, equal to nothing
  std::uint64_t netns_device = 0;
  std::uint64_t netns_inode = 0;
};
[[nodiscard]] bool SameHost(const HostIdentity& a, const HostIdentity& b);

struct SessionOpen {
  HostIdentity host;
  std::uint32_t uid = 0;  // as the client says
  // About lanes of tcp, whose way may be another than the vestibule's (which ssh may carry).
  EncryptionWish lane_wish = EncryptionWish::kNotNeeded;
  std::string service;
  std::vector<std::byte> request;

  [[nodiscard]] std::vector<std::byte> Encode() const;
  static Status Decode(ByteSpan body, SessionOpen& out);
};

// One transport at the server: where it listens, or why it does not.
struct Offer {
  Kind kind = Kind::kTcp;
  bool available = false;
  std::uint16_t port = 0;  // tcp, verbs
  std::string name;        // shm
  std::string reason;      // when not available
};

struct SessionGrant {
  std::uint64_t session_id = 0;
  std::uint64_t server_epoch = 0;  // reserved for the upper layers; 0: none
  bool same_host = false;
  bool encrypt_lanes = false;  // lanes of tcp speak TLS
  std::vector<Offer> offers;
  std::vector<std::byte> grant;

  [[nodiscard]] std::vector<std::byte> Encode() const;
  static Status Decode(ByteSpan body, SessionGrant& out);
};

// Never empty and never longer than the wire takes.
std::string_view Clip(std::string_view sentence, std::size_t max);

}  // namespace rdfs::transport::session
