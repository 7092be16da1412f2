#include "transport/session/session_server.h"

#include <unistd.h>

#include <utility>

#include "transport/base/log.h"
#include "transport/base/printable.h"
#include "transport/session/peer.h"

namespace rdfs::transport::session {
namespace {

ServerPolicy PolicyOf(const AcceptorOptions& options) {
  ServerPolicy policy;
  for (const NamedKey& key : options.keys) policy.keys.push_back({key.name, key.key});
  policy.allow_plaintext = options.allow_plaintext;
  policy.key_advice = options.key_advice;
  return policy;
}

bool EncryptLanes(EncryptionWish wish, bool same_host, bool allow_plaintext) {
  if (wish == EncryptionWish::kWanted) return true;
  if (wish == EncryptionWish::kPlaintextAsked && allow_plaintext) return false;
  return !same_host;
}

std::string OriginOf(const PeerFacts& peer) {
  return peer.user ? "uid " + std::to_string(*peer.user) : std::string(AsText(peer.address));
}

}  // namespace

SessionServer::SessionServer(const AcceptorOptions& options, SessionHost& host)
    : host_(host),
      same_user_only_(options.same_user_only),
      policy_(PolicyOf(options)),
      identity_(ReadHostIdentity()),
      wrong_keys_(options.wrong_keys) {}

SessionServer::~SessionServer() {
  while (const auto id = table_.Any()) End(*id);
}

std::vector<Offer> SessionServer::OffersFor(const SessionOpen& open, bool same_host) const {
  std::vector<Offer> offers = offers_;
  for (Offer& offer : offers) {
    if (offer.kind != Kind::kShm || !offer.available) continue;
    // The socket's name is for those who can use it.
    if (!same_host) {
      offer = {Kind::kShm, false, 0, "", "it runs on another host or in another container"};
    } else if (same_user_only_ && open.uid != geteuid()) {
      offer = {Kind::kShm, false, 0, "", "it was started by another user and serves only that one"};
    }
  }
  return offers;
}

Result<SessionServer::Opened> SessionServer::Open(const SessionOpen& open,
                                                  const Agreement& agreement, const PeerFacts& peer,
                                                  TimePoint now) {
  const SessionRequest request{.session_id = table_.NewId(),
                               .service = open.service,
                               .request = open.request,
                               .peer = peer.name,
                               .origin = OriginOf(peer),
                               .key_name = agreement.key_name,
                               .uid = peer.user,
                               .same_host = SameHost(open.host, identity_),
                               .exporter = ExporterOf(agreement)};
  if (open.service == kProbeService) {
    if (const auto overdue = host_.Overdue(now)) End(*overdue);
  }
  RDFS_ASSIGN_OR_RETURN(Admission admission, host_.Admit(request));
  const std::shared_ptr<void> context = admission.context;
  auto opened = Enter(request, open, agreement, std::move(admission), now);
  // The host holds what it has admitted until it is told of the end.
  if (!opened.ok()) host_.OnSessionEnd(request.session_id, context);
  return opened;
}

Result<SessionServer::Opened> SessionServer::Enter(const SessionRequest& request,
                                                   const SessionOpen& open,
                                                   const Agreement& agreement, Admission admission,
                                                   TimePoint now) {
  if (admission.grant.size() > kMaxOpening || admission.domain == nullptr) {
    return Status(Code::kInternal, "the service '" + open.service + "' granted what cannot travel");
  }
  // Its own oldest: a client that comes back is not refused for what it has left behind.
  if (const auto oldest = table_.OldestOf(admission.context)) End(*oldest);
  SessionGrant grant;
  grant.session_id = request.session_id;
  grant.same_host = request.same_host;
  grant.encrypt_lanes = EncryptLanes(open.lane_wish, request.same_host, policy_.allow_plaintext);
  grant.offers = OffersFor(open, request.same_host);
  grant.grant = std::move(admission.grant);
  RDFS_RETURN_IF_ERROR(
      table_.Add({request.session_id, std::move(admission.domain), std::move(admission.context),
                  agreement.session_secret, grant.encrypt_lanes},
                 now));
  LogDebug("session {:016x} of {} opened for '{}'", request.session_id, request.peer,
           Printable(open.service));
  return Opened{request.session_id, grant.Encode()};
}

void SessionServer::End(std::uint64_t session_id) {
  const auto ticket = table_.Remove(session_id);
  if (ticket == nullptr) return;
  LogDebug("session {:016x} ended", session_id);
  host_.OnSessionEnd(session_id, ticket->context);
}

void SessionServer::GiveLane(const SessionTable::Ticket& ticket, std::unique_ptr<Connection> lane) {
  // A stream that has had its answer may take seconds until its TLS stands.
  if (table_.Find(ticket.session_id) == nullptr) {
    return LogDebug("session {:016x} ended before its lane stood", ticket.session_id);
  }
  LogDebug("session {:016x} opened a lane: {}", ticket.session_id, lane->Describe());
  host_.OnLane(ticket.session_id, ticket.context, std::move(lane));
}

WrongKeyLimit::Duration SessionServer::OnWrongKey(const PeerFacts& peer, TimePoint now) {
  ++unlogged_wrong_keys_;
  if (!wrong_keys_logged_ || now - *wrong_keys_logged_ >= std::chrono::seconds(10)) {
    LogWarn("{} tried a wrong key ({} wrong since the last such line)", peer.name,
            unlogged_wrong_keys_);
    unlogged_wrong_keys_ = 0;
    wrong_keys_logged_ = now;
  }
  host_.OnWrongKey();
  return wrong_keys_.OnWrongKey(peer.address, now);
}

}  // namespace rdfs::transport::session
