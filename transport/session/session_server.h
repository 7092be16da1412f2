// SessionServer: what the acceptor's end knows and decides, apart from sockets: the policy of the
// handshake, what is offered, which sessions there are, and the way to the upper layer.
//
// Owned by the acceptor, on its thread. Never blocks. The SessionHost outlives it.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/session/acceptor.h"
#include "transport/session/handshake.h"
#include "transport/session/messages.h"
#include "transport/session/probe.h"
#include "transport/session/rate_limit.h"
#include "transport/session/session_table.h"

namespace rdfs::transport::session {

// What is known of the other end of a stream without asking it.
struct PeerFacts {
  std::string name;           // "10.0.0.2:51342", for logs
  PeerAddress address{};      // for the limits
  std::optional<uid_t> user;  // as the kernel reports it
  // Nobody can listen on the way: same host, or inside ssh.
  bool local = false;
  // A stream that was handed to us (Serve), not one that anybody may connect: it has more time and
  // makes room for nobody.
  bool given = false;
};

class SessionServer {
 public:
  SessionServer(const AcceptorOptions& options, SessionHost& host);
  SessionServer(const SessionServer&) = delete;
  SessionServer& operator=(const SessionServer&) = delete;
  // Ends every session.
  ~SessionServer();

  [[nodiscard]] const ServerPolicy& policy() const { return policy_; }
  void set_offers(std::vector<Offer> offers) { offers_ = std::move(offers); }
  // Beside the streams that were given.
  [[nodiscard]] bool offers_lanes() const {
    return std::ranges::any_of(offers_, &Offer::available);
  }

  // Asks the upper layer. On success the session stands until End; the bytes are the grant's.
  struct Opened {
    std::uint64_t session_id = 0;
    std::vector<std::byte> grant;
  };
  Result<Opened> Open(const SessionOpen& open, const Agreement& agreement, const PeerFacts& peer,
                      TimePoint now);
  void End(std::uint64_t session_id);
  [[nodiscard]] std::shared_ptr<const SessionTable::Ticket> Find(std::uint64_t session_id) const {
    return table_.Find(session_id);
  }

  Result<SessionTable::Redeemed> Redeem(ByteSpan token, Kind kind, TimePoint now) {
    return table_.Redeem(token, kind, now);
  }
  // The lane ends at once where its session has ended since the token was redeemed.
  void GiveLane(const SessionTable::Ticket& ticket, std::unique_ptr<Connection> lane);

  // How long to hold the answer. Logs, at most one line in ten seconds.
  WrongKeyLimit::Duration OnWrongKey(const PeerFacts& peer, TimePoint now);

 private:
  // The second half of Open: the session stands.
  Result<Opened> Enter(const SessionRequest& request, const SessionOpen& open,
                       const Agreement& agreement, Admission admission, TimePoint now);
  [[nodiscard]] std::vector<Offer> OffersFor(const SessionOpen& open, bool same_host) const;

  ProbeService host_;
  const bool same_user_only_;
  ServerPolicy policy_;
  std::vector<Offer> offers_;
  const HostIdentity identity_;
  SessionTable table_;
  WrongKeyLimit wrong_keys_;
  std::uint64_t unlogged_wrong_keys_ = 0;
  std::optional<TimePoint> wrong_keys_logged_;
};

}  // namespace rdfs::transport::session
