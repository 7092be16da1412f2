#include "transport/session/dial.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "transport/base/random.h"
#include "transport/session/peer.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport::session {
namespace {

// How often a server that has let us go is connected to again, and after what pause: a random one,
// so that those who came together do not come together again.
constexpr int kMoreTries = 9;
constexpr std::uint64_t kShortestPauseMs = 20, kLongestPauseMs = 200;

std::string Where(const std::string& host, std::uint16_t port) {
  return Endpoint{Kind::kTcp, host, port}.ToString().substr(6);
}

std::vector<std::string> HostsOf(const DialOptions& options) {
  std::vector<std::string> hosts{options.host};
  hosts.insert(hosts.end(), options.other_hosts.begin(), options.other_hosts.end());
  return hosts;
}

Deadline ConnectDeadline(const DialOptions& options) {
  return std::min(options.deadline, options.connect_deadline.value_or(options.deadline));
}

// The first that answers, each with its share of the time; it is hosts.front() then. Errors: the
// first one's.
Result<Fd> ConnectToOneOf(std::vector<std::string>& hosts, const DialOptions& options) {
  Status first;
  const Deadline deadline = ConnectDeadline(options);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const TimePoint now = BootClock::now();
    const auto share = std::max(deadline - now, {}) / static_cast<std::int64_t>(hosts.size() - i);
    auto socket = tcp::ConnectSocket(hosts[i], options.port, now + share);
    if (socket.ok()) {
      std::rotate(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(i), hosts.end());
      return socket;
    }
    if (i == 0) first = socket.status();
  }
  return first;
}

EncryptionWish WishFor(const DialOptions& options, bool local) {
  if (options.encrypt_always) return EncryptionWish::kWanted;
  if (local) return EncryptionWish::kNotNeeded;
  return options.plaintext ? EncryptionWish::kPlaintextAsked : EncryptionWish::kWanted;
}

// Lanes may go another way than the vestibule; on which host the server is, it finds out itself.
EncryptionWish LaneWishFor(const DialOptions& options) {
  if (options.encrypt_always) return EncryptionWish::kWanted;
  return options.plaintext ? EncryptionWish::kPlaintextAsked : EncryptionWish::kNotNeeded;
}

Status CheckOptions(const DialOptions& options) {
  if (options.plaintext && (options.require_encryption || options.encrypt_always)) {
    return {Code::kInvalidArgument, "plaintext and required encryption exclude each other"};
  }
  if (options.require_encryption && options.require == Kind::kVerbs) {
    return {Code::kInvalidArgument,
            "verbs is not encrypted on the wire: leave out one of the two requirements"};
  }
  if (options.request.size() > kMaxOpening || options.service.size() > kMaxService) {
    return {Code::kInvalidArgument, "the opening words of a session have at most 4096 bytes"};
  }
  return Status::Ok();
}

// `heard`: the server's hello came.
Result<Agreement> Authenticate(FrameStream& vestibule, const DialOptions& options,
                               EncryptionWish wish, bool& heard) {
  ClientHandshake handshake({options.key, options.key_name, wish}, Randomness::Draw());
  RDFS_ASSIGN_OR_RETURN(std::vector<std::byte> next, handshake.Start());
  for (;;) {
    RDFS_RETURN_IF_ERROR(vestibule.SendAll(std::move(next), options.deadline));
    RDFS_RETURN_IF_ERROR(vestibule.Await(options.deadline));
    heard = true;
    RDFS_ASSIGN_OR_RETURN(next, handshake.OnFrame(vestibule.raw()));
    vestibule.Next();
    if (handshake.done()) return handshake.agreement();
  }
}

Result<SessionGrant> OpenSession(FrameStream& vestibule, const DialOptions& options) {
  SessionOpen open;
  open.host = ReadHostIdentity();
  open.uid = geteuid();
  open.lane_wish = LaneWishFor(options);
  open.service = options.service;
  open.request = options.request;
  RDFS_RETURN_IF_ERROR(
      vestibule.SendAll(EncodeFrame(FrameType::kSessionOpen, open.Encode()), options.deadline));
  RDFS_RETURN_IF_ERROR(vestibule.Await(options.deadline));
  const Frame frame = vestibule.frame();
  if (frame.type == FrameType::kRefused) {
    Refusal refusal;
    RDFS_RETURN_IF_ERROR(Refusal::Decode(frame.body, refusal));
    return refusal.why;
  }
  if (frame.type != FrameType::kSessionGrant) {
    return Status(Code::kProtocolError, "the server sent a message out of turn");
  }
  SessionGrant grant;
  RDFS_RETURN_IF_ERROR(SessionGrant::Decode(frame.body, grant));
  vestibule.Next();
  return grant;
}

Status StartEncryption(FrameStream& vestibule, const Agreement& agreement, Deadline deadline) {
  if (agreement.encryption == Encryption::kNone) return Status::Ok();
  RDFS_ASSIGN_OR_RETURN(auto tls, tcp::WrapInTls(vestibule.TakeStream(), tcp::TlsRole::kClient,
                                                 agreement.tls_key.bytes(), deadline));
  vestibule.GiveStream(std::move(tls));
  return Status::Ok();
}

Result<Dialled> DialOver(std::unique_ptr<tcp::ByteStream> stream, bool local,
                         const DialOptions& options, bool& heard) {
  Dialled out;
  out.vestibule = std::make_unique<FrameStream>(std::move(stream), kMaxHandshakeBody);
  RDFS_ASSIGN_OR_RETURN(out.agreement,
                        Authenticate(*out.vestibule, options, WishFor(options, local), heard));
  RDFS_RETURN_IF_ERROR(StartEncryption(*out.vestibule, out.agreement, options.deadline));
  out.vestibule->set_max_body(kMaxSessionBody);
  RDFS_ASSIGN_OR_RETURN(out.grant, OpenSession(*out.vestibule, options));
  return out;
}

Result<Dialled> DialSocket(Fd socket, const std::string& where, const DialOptions& options,
                           bool& heard) {
  KeepAlive(socket.get());
  const bool local = tcp::IsLocalPeer(socket.get());
  return DialOver(tcp::MakeSocketStream(std::move(socket), where), local, options, heard);
}

// False when the deadline comes first.
bool Pause(Deadline deadline) {
  const std::uint64_t ms =
      kShortestPauseMs + RandomU64() % (kLongestPauseMs - kShortestPauseMs + 1);
  const auto pause = std::chrono::milliseconds(static_cast<std::int64_t>(ms));
  if (BootClock::now() + pause >= deadline) return false;
  std::this_thread::sleep_for(pause);
  return true;
}

}  // namespace

Result<Dialled> DialServer(DialOptions& options) {
  RDFS_RETURN_IF_ERROR(CheckOptions(options));
  bool heard = false;
  if (options.stream != nullptr) {
    // What runs inside ssh is as safe as ssh made it.
    RDFS_ASSIGN_OR_RETURN(Dialled out, DialOver(std::move(options.stream), true, options, heard));
    out.hosts = HostsOf(options);
    out.over_given_stream = true;
    return out;
  }
  std::vector<std::string> hosts = HostsOf(options);
  RDFS_ASSIGN_OR_RETURN(Fd socket, ConnectToOneOf(hosts, options));
  const std::string where = Where(hosts.front(), options.port);
  // None where the peer has reset it already; an empty name would be this host.
  if (std::string numeric = NumericHostOf(socket.get()); !numeric.empty()) {
    hosts.front() = std::move(numeric);
  }
  auto out = DialSocket(std::move(socket), where, options, heard);
  // Where many come at once the server lets some go that have said nothing yet (rate_limit.h).
  // Before its hello no key has been tried: trying again costs nobody's patience.
  for (int more = kMoreTries; more > 0 && !heard; --more) {
    if (out.status().code() != Code::kDisconnected || !Pause(options.deadline)) break;
    auto again = tcp::ConnectSocket(hosts.front(), options.port, options.deadline);
    if (!again.ok()) break;
    out = DialSocket(*std::move(again), where, options, heard);
  }
  // Sentences of the stream name it already; the others are told where they come from.
  if (!out.ok()) {
    const bool named = out.status().message().find(where) != std::string::npos;
    return named ? out.status() : out.status().WithContext(where);
  }
  out->hosts = std::move(hosts);
  return out;
}

}  // namespace rdfs::transport::session
