#include "tools/sock/far/roads.h"

#include <system_error>
#include <utility>

#include "transport/base/log.h"

namespace rdfs::sock::far {
namespace {

using transport::Acceptor;
using transport::Kind;
using transport::Session;

constexpr std::chrono::seconds kDialTime{5};
// So many hosts that do not answer keep one that does waiting.
constexpr std::size_t kMostDiallers = 8;

// What a lane that was accepted has to know of its session.
struct Context {
  std::string pair;
  std::shared_ptr<transport::Domain> domain;
};

transport::AcceptorOptions OptionsOf(const Pairs& pairs) {
  transport::AcceptorOptions options;
  options.port = pairs.listen;
  for (const Address& address : pairs.listen_at) options.addresses.push_back(ToString(address));
  for (const Pair& pair : pairs.pairs) options.keys.push_back({pair.name, pair.key});
  options.offer = {Kind::kVerbs};
  if (pairs.over_tcp) options.offer.push_back(Kind::kTcp);
  return options;
}

std::vector<std::byte> Request() {
  const Le32 version = kWireVersion;
  const ByteSpan bytes = std::as_bytes(std::span(&version, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Result<std::unique_ptr<Roads>> Roads::Create(const Pairs& pairs) {
  RDFS_ASSIGN_OR_RETURN(EventFd news, EventFd::Create());
  std::unique_ptr<Roads> roads(new Roads(pairs, std::move(news)));
  RDFS_ASSIGN_OR_RETURN(roads->acceptor_, Acceptor::Create(OptionsOf(pairs), *roads));
  try {
    roads->answering_ = std::thread([&roads = *roads] {
      const Status status = roads.acceptor_->Run();
      if (!status.ok()) LogError("no more carriers are answered: {}", status.message());
    });
    roads->StartDialling();
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted, error.code().value(), "cannot start a thread");
  }
  return roads;
}

Roads::~Roads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    errands_.clear();
  }
  changed_.notify_all();
  StopAnswering();
  for (std::thread& one : dialling_) one.join();
}

void Roads::StopAnswering() {
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (answering_.joinable()) answering_.join();
  acceptor_.reset();
}

std::vector<Roads::News> Roads::Take() {
  news_fd_.Drain();
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

void Roads::Report(News news) {
  {
    const std::lock_guard lock(mutex_);
    news_.push_back(std::move(news));
  }
  news_fd_.Ring();
}

void Roads::Dial(const Pair& pair, const Address& address) {
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    errands_.push_back({pair, ToString(address)});
    waits = errands_.size() > idle_;
  }
  changed_.notify_all();
  if (!waits || dialling_.size() == kMostDiallers) return;
  try {
    StartDialling();
  } catch (const std::system_error&) {
    // It waits for those that there are.
  }
}

void Roads::StartDialling() {
  dialling_.reserve(kMostDiallers);
  dialling_.emplace_back([this] { DialAll(); });
}

void Roads::DialAll() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [&] { return stopping_ || !errands_.empty(); });
    --idle_;
    if (stopping_) return;
    const Errand errand = std::move(errands_.front());
    errands_.pop_front();
    lock.unlock();
    Report(DialOne(errand));
    lock.lock();
  }
}

Roads::News Roads::DialOne(const Errand& errand) const {
  News news{.pair = errand.pair.name, .parts = {}, .status = {}};
  Lane::Parts parts{.pair = errand.pair.name,
                    .dialled = true,
                    .domain = transport::Domain::Create("sock " + errand.pair.name),
                    .session = {},
                    .connection = {}};
  transport::DialOptions options;
  options.host = errand.host;
  options.port = errand.pair.port;
  options.key = errand.pair.key;
  options.key_name = errand.pair.name;
  if (!over_tcp_) options.require = Kind::kVerbs;
  options.service = kService;
  options.request = Request();
  options.deadline = DeadlineAfter(kDialTime);
  auto session = Session::Dial(std::move(options), parts.domain);
  if (!session.ok()) {
    news.status = std::move(session).status();
    return news;
  }
  parts.session = *std::move(session);
  auto lane = parts.session->OpenLane(DeadlineAfter(kDialTime));
  if (!lane.ok()) {
    // The other carrier is there: it is the road that is not.
    news.status = Status(Code::kUnavailable, lane.status().message());
    return news;
  }
  parts.connection = *std::move(lane);
  news.parts = std::move(parts);
  return news;
}

// --- On the acceptor's thread

Result<transport::Admission> Roads::Admit(const transport::SessionRequest& request) {
  if (request.service != kService) {
    return Status(Code::kNotFound, "here is a carrier of rdsock's, and nothing else");
  }
  ByteReader reader(request.request);
  const std::uint32_t version = reader.Read<Le32>();
  if (!reader.ok() || version != kWireVersion) {
    return Status(Code::kVersionMismatch, "the two carriers are of different releases of rdsock");
  }
  auto context = std::make_shared<Context>();
  context->pair = request.key_name;
  context->domain = transport::Domain::Create("sock " + request.key_name);
  return transport::Admission{.domain = context->domain, .grant = {}, .context = context};
}

void Roads::OnLane(std::uint64_t, const std::shared_ptr<void>& context,
                   std::unique_ptr<transport::Connection> lane) {
  const auto& known = *static_cast<const Context*>(context.get());
  Report({.pair = known.pair,
          .parts = Lane::Parts{.pair = known.pair,
                               .dialled = false,
                               .domain = known.domain,
                               .session = {},
                               .connection = std::move(lane)},
          .status = {}});
}

}  // namespace rdfs::sock::far
