#include "tools/sock/far/lane.h"

#include <algorithm>
#include <utility>

namespace rdfs::sock::far {
namespace {

using transport::Completion;

Status Impossible(const char* what) { return {Code::kProtocolError, what}; }

}  // namespace

// Ids of the side that dialled are odd.
Lane::Lane(Parts parts, Host& host, TimePoint now)
    : parts_(std::move(parts)),
      host_(host),
      next_id_(parts_.dialled ? 1 : 2),
      peers_next_id_(parts_.dialled ? 2 : 1),
      heard_(now),
      said_(now) {}

Lane::~Lane() {
  for (auto& [id, connection] : carried_) host_.Forget(*connection);
  for (auto& [id, connection] : carried_) connection->CloseBells();
  parts_.connection.reset();
}

bool Lane::TakePeersId(std::uint32_t id) {
  if (id < peers_next_id_ || id % 2 != peers_next_id_ % 2 || id > UINT32_MAX - 2) return false;
  peers_next_id_ = id + 2;
  return true;
}

Carried& Lane::Add(std::unique_ptr<Carried> connection) {
  Carried& added = *connection;
  added.lane = this;
  carried_.emplace(added.id(), std::move(connection));
  return added;
}

void Lane::Send(const Record& record) {
  for (bool fresh = false;; fresh = true) {
    if (fresh || out_used_ == 0) {
      if (out_.size() == out_used_) out_.emplace_back();
      out_[out_used_++].size = 0;
    }
    Message& message = out_[out_used_ - 1];
    ByteWriter writer(MutableByteSpan(message.bytes).subspan(message.size));
    if (!Append(record, writer)) continue;
    message.size += writer.size();
    return;
  }
}

void Lane::Tell(std::uint32_t connection, const Word& word) { Send({connection, word}); }
void Lane::Tell(std::uint32_t connection, const Bytes& bytes) { Send({connection, bytes}); }

bool Lane::MayShip() const { return writes_.size() + 2 <= capabilities().max_outstanding; }

Status Lane::Ship(Carried& connection, std::uint64_t offset, std::uint64_t count) {
  auto ticket =
      parts_.connection->Write({.region = &connection.source(), .offset = offset, .length = count},
                               {.region = connection.remote_ring(), .offset = offset});
  if (!ticket.ok()) return std::move(ticket).status();
  connection.Posted();
  shipped_ += count;
  writes_.push_back({*ticket, &connection});
  return {};
}

Status Lane::Flush(TimePoint now) {
  for (std::size_t i = 0; i < out_used_; ++i) {
    RDFS_RETURN_IF_ERROR(parts_.connection->Send(ByteSpan(out_[i].bytes).first(out_[i].size)));
  }
  if (out_used_ > 0) said_ = now;
  out_used_ = 0;
  return parts_.connection->Flush();
}

Result<bool> Lane::Poll(TimePoint now) {
  std::array<Completion, 32> completions;
  RDFS_ASSIGN_OR_RETURN(const std::size_t count, parts_.connection->Poll(completions));
  for (std::size_t i = 0; i < count; ++i) {
    const Completion& completion = completions[i];
    const bool message = completion.kind == Completion::Kind::kMessage;
    if (message) heard_ = now;
    RDFS_RETURN_IF_ERROR(message ? OnMessage(completion.message) : OnWritten(completion));
  }
  return count > 0;
}

Status Lane::OnWritten(const Completion& completion) {
  RDFS_RETURN_IF_ERROR(completion.status);
  const auto found = std::ranges::find(writes_, completion.ticket, &Written::ticket);
  if (found == writes_.end()) return {Code::kInternal, "a WRITE that nobody has posted"};
  Carried& connection = *found->connection;
  writes_.erase(found);
  connection.Written();
  host_.Wake(connection);
  RemoveIfOver(connection);
  return {};
}

Status Lane::OnMessage(ByteSpan message) {
  ByteReader in(message);
  while (in.remaining() > 0) {
    RDFS_ASSIGN_OR_RETURN(const Record record, DecodeRecord(in));
    RDFS_RETURN_IF_ERROR(OnRecord(record));
  }
  return {};
}

Status Lane::OnRecord(const Record& record) {
  if (std::holds_alternative<Beat>(record.body)) return {};
  if (const auto* wanted = std::get_if<Wanted>(&record.body)) {
    return host_.OnWanted(*this, *wanted);
  }
  if (const auto* open = std::get_if<Open>(&record.body)) {
    if (!TakePeersId(record.connection)) return Impossible("an id that cannot be");
    return host_.OnOpen(*this, record.connection, *open);
  }
  return OnAnswer(record);
}

// Of a connection that there has to be.
Status Lane::OnAnswer(const Record& record) {
  const auto found = carried_.find(record.connection);
  if (found == carried_.end()) return Impossible("a word of no connection");
  Carried& connection = *found->second;
  const bool ours = record.connection % 2 == next_id_ % 2;
  if (const auto* opened = std::get_if<Opened>(&record.body)) {
    if (!ours || connection.begun()) return Impossible("an answer that nobody asked for");
    return host_.OnOpened(*this, connection, *opened);
  }
  if (const auto* refused = std::get_if<Refused>(&record.body)) {
    if (!ours || connection.begun()) return Impossible("an answer that nobody asked for");
    host_.OnRefused(*this, connection, *refused);
    host_.Forget(connection);
    carried_.erase(found);
    return {};
  }
  const auto* bytes = std::get_if<Bytes>(&record.body);
  RDFS_RETURN_IF_ERROR(bytes != nullptr ? connection.On(*bytes, *this)
                                        : connection.On(std::get<Word>(record.body), *this));
  host_.Wake(connection);
  RemoveIfOver(connection);
  return {};
}

Result<bool> Lane::Look(Carried& connection, bool rests) {
  RDFS_ASSIGN_OR_RETURN(const bool something, connection.Look(*this, rests));
  RemoveIfOver(connection);
  return something;
}

void Lane::RemoveIfOver(Carried& connection) {
  if (!connection.Over()) return;
  host_.Forget(connection);
  carried_.erase(connection.id());
}

Status Lane::Tick(TimePoint now, bool waiting) {
  const bool watch = !carried_.empty() || waiting;
  if (!watch || !watched_) heard_ = now;
  watched_ = watch;
  if (!watch) return {};
  if (now - heard_ > kSilence) return {Code::kDisconnected, "the other host is silent"};
  if (now - said_ >= kBeatEvery) Send({0, Beat{}});
  return {};
}

}  // namespace rdfs::sock::far
