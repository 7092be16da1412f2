#include "transport/session/acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <mutex>
#include <utility>

#include "transport/base/event_fd.h"
#include "transport/base/log.h"
#include "transport/session/listeners.h"
#include "transport/session/peer.h"
#include "transport/session/session_server.h"
#include "transport/session/vestibule.h"
#include "transport/shm/listener.h"
#include "transport/tcp/transport.h"

namespace rdfs::transport {
namespace session {
namespace {

// One turn of the loop takes so many newcomers from each socket, then looks at everybody else: few
// streams, so that an answer that has come is read before many newcomers ask for room.
constexpr int kStreamsATurn = 8;
constexpr int kLanesATurn = 64;
// Out of descriptors: what is listened on stays readable, so it is left alone for a while.
constexpr std::chrono::milliseconds kAcceptPause{100};
// Newcomers make us look for what we do not offer no more often than this.
constexpr std::chrono::seconds kLookPause{5};

class AcceptorImpl final : public Acceptor {
 public:
  AcceptorImpl(AcceptorOptions options, SessionHost& host, std::unique_ptr<Listeners> listeners,
               EventFd wake)
      : options_(std::move(options)),
        host_(host),
        wake_(std::move(wake)),
        listeners_(std::move(listeners)),
        server_(options_, host) {
    server_.set_offers(listeners_->offers());
  }

  [[nodiscard]] std::uint16_t port() const override { return listeners_->port(); }
  [[nodiscard]] std::string WhyNotOffered(Kind kind) const override;
  void Serve(std::unique_ptr<tcp::ByteStream> stream) override;
  Status Run() override;
  void Stop() override;

 private:
  struct Guest {
    explicit Guest(std::unique_ptr<Vestibule> v) : vestibule(std::move(v)) {}
    std::unique_ptr<Vestibule> vestibule;
    std::size_t first = 0, count = 0;  // its entries in polled_
  };
  using Guests = std::list<Guest>;

  void PreparePoll();
  [[nodiscard]] int PollTimeout(TimePoint now) const;
  void TakeGivenStreams(TimePoint now);
  void AcceptStreams(TimePoint now);
  void AcceptFrom(int listening, TimePoint now);
  void LookAgain(TimePoint now);
  void MakeRoom(const PeerAddress& newcomer);
  void AcceptLanes(TimePoint now);
  Status AcceptLane(Incoming& incoming, Kind kind, TimePoint now);
  void AdvanceGuests(TimePoint now);

  const AcceptorOptions options_;
  SessionHost& host_;
  const EventFd wake_;  // Stop was called or a stream was given
  std::atomic<bool> stopping_{false};
  std::mutex given_mutex_;
  std::vector<std::unique_ptr<tcp::ByteStream>> given_;  // under given_mutex_

  // Destroyed from the last to the first: vestibules refer to the server.
  std::unique_ptr<Listeners> listeners_;
  SessionServer server_;
  Guests guests_;
  std::vector<pollfd> polled_;
  // Apart, as each is the first to ask for a descriptor once its pause is over.
  TimePoint accept_after_{};
  TimePoint lanes_after_{};
  TimePoint look_after_{};
};

void AcceptorImpl::Serve(std::unique_ptr<tcp::ByteStream> stream) {
  {
    const std::lock_guard lock(given_mutex_);
    given_.push_back(std::move(stream));
  }
  wake_.Ring();
}

std::string AcceptorImpl::WhyNotOffered(Kind kind) const {
  const std::vector<Offer>& offers = listeners_->offers();
  const auto offer = std::ranges::find(offers, kind, &Offer::kind);
  return offer == offers.end() || offer->available ? std::string() : offer->reason;
}

void AcceptorImpl::Stop() {
  stopping_.store(true);
  wake_.Ring();
}

Status AcceptorImpl::Run() {
  while (!stopping_.load()) {
    PreparePoll();
    if (poll(polled_.data(), polled_.size(), PollTimeout(BootClock::now())) < 0 && errno != EINTR) {
      return Status::FromErrno(errno, "poll");
    }
    const TimePoint now = BootClock::now();
    if (polled_.front().revents != 0) wake_.Drain();
    // Those who are here first: a newcomer must not drive out one whose answer has just arrived.
    AdvanceGuests(now);
    TakeGivenStreams(now);
    AcceptStreams(now);
    AcceptLanes(now);
  }
  // Before anybody else can listen there: Session takes no lane behind it (session.cc, Standing).
  guests_.clear();
  listeners_->Close();
  return Status::Ok();
}

void AcceptorImpl::PreparePoll() {
  polled_.clear();
  polled_.push_back({wake_.fd(), POLLIN, 0});
  if (BootClock::now() >= accept_after_) {
    for (const Fd& socket : listeners_->sockets()) polled_.push_back({socket.get(), POLLIN, 0});
  }
  if (BootClock::now() >= lanes_after_) {
    for (const auto& lane : listeners_->lanes()) {
      polled_.push_back({lane.listener->fd(), POLLIN, 0});
    }
  }
  for (Guest& guest : guests_) {
    guest.first = polled_.size();
    guest.vestibule->AddPollEntries(polled_);
    guest.count = polled_.size() - guest.first;
  }
}

int AcceptorImpl::PollTimeout(TimePoint now) const {
  std::optional<Deadline> next;
  for (const TimePoint pause : {accept_after_, lanes_after_}) {
    if (pause > now && (!next || pause < *next)) next = pause;
  }
  for (const Guest& guest : guests_) {
    const auto deadline = guest.vestibule->deadline();
    if (deadline && (!next || *deadline < *next)) next = deadline;
  }
  return next ? PollTimeoutMs(*next, now) : -1;
}

void AcceptorImpl::AdvanceGuests(TimePoint now) {
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto entries = std::span(polled_).subspan(guest->first, guest->count);
    const auto deadline = guest->vestibule->deadline();
    const bool due = (deadline && now >= *deadline) ||
                     std::ranges::any_of(entries, [](const pollfd& e) { return e.revents != 0; });
    const bool stays =
        !guest->vestibule->session_lost() && (!due || guest->vestibule->Advance(now));
    if (stays) {
      ++guest;
      continue;
    }
    const bool given = guest->vestibule->peer().given;
    guest = guests_.erase(guest);
    if (given) host_.OnStreamEnd();
  }
}

void AcceptorImpl::TakeGivenStreams(TimePoint now) {
  std::vector<std::unique_ptr<tcp::ByteStream>> streams;
  {
    const std::lock_guard lock(given_mutex_);
    streams.swap(given_);
  }
  for (auto& stream : streams) {
    PeerFacts peer{.name = stream->peer(),
                   .address = {},
                   .user = PeerUser(stream->read_fd()),
                   .local = true,
                   .given = true};
    guests_.emplace_back(
        std::make_unique<Vestibule>(std::move(stream), std::move(peer), server_, now));
  }
}

void AcceptorImpl::AcceptStreams(TimePoint now) {
  if (now < accept_after_) return;
  for (const Fd& socket : listeners_->sockets()) AcceptFrom(socket.get(), now);
}

void AcceptorImpl::AcceptFrom(int listening, TimePoint now) {
  for (int i = 0; i < kStreamsATurn; ++i) {
    Fd socket(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        LogWarn("cannot accept connections: {}; raise `ulimit -n`",
                Status::FromErrno(errno, "accept").message());
        accept_after_ = now + kAcceptPause;
      }
      return;
    }
    LookAgain(now);
    KeepAlive(socket.get());
    PeerFacts peer{.name = PeerName(socket.get()),
                   .address = AddressOf(socket.get()),
                   .user = {},
                   .local = tcp::IsLocalPeer(socket.get())};
    MakeRoom(peer.address);
    auto stream = tcp::MakeSocketStream(std::move(socket), peer.name);
    guests_.emplace_back(
        std::make_unique<Vestibule>(std::move(stream), std::move(peer), server_, now));
    // What it wants to say may have come with the connection: heard now, it makes room for nobody.
    if (!guests_.back().vestibule->Advance(now)) guests_.pop_back();
  }
}

// Before the newcomer is told what there is.
void AcceptorImpl::LookAgain(TimePoint now) {
  if (now < look_after_) return;
  look_after_ = now + kLookPause;
  if (listeners_->LookAgain(options_)) server_.set_offers(listeners_->offers());
}

void AcceptorImpl::MakeRoom(const PeerAddress& newcomer) {
  std::vector<HalfOpen> open;
  std::vector<Guests::iterator> who;
  for (auto guest = guests_.begin(); guest != guests_.end(); ++guest) {
    if (const auto half_open = guest->vestibule->half_open()) {
      open.push_back(*half_open);
      who.push_back(guest);
    }
  }
  if (const auto victim = ChooseVictim(open, newcomer, {})) {
    LogDebug("{} was dropped: too many connections wait", who[*victim]->vestibule->peer().name);
    guests_.erase(who[*victim]);
  }
}

void AcceptorImpl::AcceptLanes(TimePoint now) {
  if (now < lanes_after_) return;
  for (const auto& [kind, listener] : listeners_->lanes()) {
    for (int i = 0; i < kLanesATurn; ++i) {
      auto incoming = listener->Accept();
      if (!incoming.ok()) {
        LogWarn("{} cannot accept: {}", Name(kind), incoming.status().message());
        lanes_after_ = now + kAcceptPause;
        break;
      }
      if (*incoming == nullptr) break;
      const Status status = AcceptLane(**incoming, kind, now);
      if (status.ok()) continue;
      LogDebug("a lane of {} was refused: {}", (*incoming)->peer(), status.message());
      (*incoming)->Reject(status);
    }
  }
}

Status AcceptorImpl::AcceptLane(Incoming& incoming, Kind kind, TimePoint now) {
  if (kind == Kind::kShm && options_.same_user_only && shm::PeerUid(incoming) != geteuid()) {
    return {Code::kAuthenticationFailed,
            "this server was started by another user and serves only that one"};
  }
  RDFS_ASSIGN_OR_RETURN(const SessionTable::Redeemed redeemed,
                        server_.Redeem(incoming.token(), kind, now));
  auto lane = incoming.Accept(redeemed.ticket->domain);
  if (!lane.ok()) {
    LogWarn("no lane to {}: {}", incoming.peer(), lane.status().message());
    return Status::Ok();  // the Incoming is used up: there is nobody left to tell
  }
  server_.GiveLane(*redeemed.ticket, *std::move(lane));
  return Status::Ok();
}

Status CheckOptions(const AcceptorOptions& options) {
  if (options.keys.empty() != options.no_auth) {
    return {Code::kInvalidArgument, options.no_auth
                                        ? "a server without authentication has no use for a key"
                                        : "a server needs a key, or must be told to ask for none"};
  }
  for (const NamedKey& key : options.keys) {
    if (key.key.empty()) return {Code::kInvalidArgument, "the key '" + key.name + "' is empty"};
    if (key.name.size() > kMaxKeyName) {
      return {Code::kInvalidArgument, "the name of a key has at most 64 bytes"};
    }
  }
  return Status::Ok();
}

}  // namespace
}  // namespace session

Result<std::unique_ptr<Acceptor>> Acceptor::Create(AcceptorOptions options, SessionHost& host) {
  RDFS_RETURN_IF_ERROR(session::CheckOptions(options));
  RDFS_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  RDFS_ASSIGN_OR_RETURN(auto listeners, session::Listeners::Open(options));
  return std::unique_ptr<Acceptor>(std::make_unique<session::AcceptorImpl>(
      std::move(options), host, std::move(listeners), std::move(wake)));
}

}  // namespace rdfs::transport
