// Reads: grants, one-sided READs, generation words, prefetching.
//
// A read is a row of rounds. A round takes extents from the grant cache or from a reply, READs them
// into the caller's slice and their generation words behind them, and counts only if every word is
// still the granted one and the leases are not over. A round that does not count is asked for again
// inside a reply. What neither a grant nor a reply held is the next round.
#include <algorithm>
#include <cerrno>

#include "fs/client/lane_impl.h"

namespace rdfs::fs::client {
namespace {

constexpr std::size_t kWord = sizeof(Le64);
// More is never wanted ahead: 8 MiB fill any wire that a grant's round trip can lag behind.
constexpr std::uint32_t kMostAhead = 8 << 20;

// Whether [offset, offset + length) lies in a region of `size` bytes.
bool Within(std::uint64_t offset, std::uint64_t length, std::uint64_t size) {
  return offset <= size && length <= size - offset;
}

struct DecodedRead {
  ReadReply reply;
  std::array<GrantWire, kMaxGrantsPerReply> grants;
  std::size_t count = 0;
  ByteSpan bytes;
};

bool Decode(ByteReader& reader, DecodedRead& out) {
  out.reply = reader.Read<ReadReply>();
  out.count = out.reply.grants;
  if (out.count > out.grants.size()) return false;
  for (std::size_t i = 0; i < out.count; ++i) out.grants[i] = reader.Read<GrantWire>();
  out.bytes = reader.ReadSized32(kMaxInlineDataBytes);
  return reader.ok() && reader.remaining() == 0;
}

}  // namespace

CallTicket LaneImpl::Read(const CallContext& context, const OpenPtr& open, std::uint64_t offset,
                          const transport::LocalSlice& into, std::uint32_t want_ahead,
                          Callback<ReadDone> done) {
  Completion completion = [done = std::move(done)](Answer& answer) mutable {
    done(answer.status.ok() ? Result<ReadDone>(answer.read) : std::move(answer.status));
    return true;
  };
  if (open == nullptr || !buffers_.Contains(into) || into.length > kMaxTransferBytes ||
      offset > INT64_MAX - into.length) {
    return Refuse(std::move(completion), EINVAL);
  }
  Slot slot = kNoSlot;
  Call* call = Begin(context, Opcode::kRead, std::move(completion), &slot);
  if (call == nullptr) return 0;
  call->kind = Call::Kind::kRead;
  call->open = open;
  call->read = {.offset = offset, .into = into, .want_ahead = std::min(want_ahead, kMostAhead)};
  if (into.length == 0) {
    FinishLater(slot, Status::Ok());
  } else {
    StartRead(slot);
  }
  return table_.TicketOf(slot);
}

bool LaneImpl::TakeRound(Slot slot) {
  Call& call = calls_[slot];
  if (call.read.round != nullptr) return true;
  if (free_rounds_.empty()) {
    Wait(waiting_reads_, slot);
    return false;
  }
  call.read.round = free_rounds_.back();
  free_rounds_.pop_back();
  return true;
}

void LaneImpl::GiveRoundBack(Call& call) {
  if (call.kind != Call::Kind::kRead || call.read.round == nullptr) return;
  free_rounds_.push_back(std::exchange(call.read.round, nullptr));
  while (!waiting_reads_.empty() && !free_rounds_.empty() && !closing_) {
    const Waiting waiting = waiting_reads_.front();
    waiting_reads_.pop_front();
    if (StillWaits(waiting)) Restart(waiting.slot);
  }
}

void LaneImpl::StartRead(Slot slot) {
  if (!TakeRound(slot)) return;
  Call& call = calls_[slot];
  // What is lost reads nothing, also where another open file of the inode has grants.
  const bool may_cache = !call.read.no_grants && call.open->lost_errno() == 0;
  if (may_cache && wire_.connected() && ReadFromCache(slot)) return;
  AskForRead(slot);
}

bool LaneImpl::ReadFromCache(Slot slot) {
  Call& call = calls_[slot];
  ReadState& read = call.read;
  ReadRound& round = *read.round;
  const GrantCache::Cover cover =
      grants_.Find(call.open->inode(), read.position(), read.left(), Now(), round.pieces);
  const bool whole = cover.length == read.left() || cover.to_end_of_file;
  if (cover.length == 0 || (!whole && cover.pieces < round.pieces.size())) return false;
  if (!std::all_of(round.pieces.begin(),
                   round.pieces.begin() + static_cast<std::ptrdiff_t>(cover.pieces),
                   [this](const GrantPiece& piece) {
                     return arenas_.contains(piece.grant.arena) &&
                            arenas_.contains(piece.grant.generation_arena);
                   })) {
    return false;
  }
  round.count = cover.pieces;
  round.length = cover.length;
  round.ends_file = cover.to_end_of_file;
  read.file_size = cover.file_size;
  counters_->grant_hits.Add();
  PostRound(slot);
  PrefetchGrants(call);
  return true;
}

void LaneImpl::AskForRead(Slot slot) {
  Call& call = calls_[slot];
  ReadState& read = call.read;
  read.own_changes = call.open->inode().own_changes.load(std::memory_order_acquire);
  call.body.Encode([&](ByteWriter& writer) {
    writer.Write(ReadRequest{.open = 0,  // filled in when it is sent
                             .offset = read.position(),
                             .length = read.left(),
                             .want_ahead = read.no_grants ? 0 : read.want_ahead,
                             .flags = read.no_grants ? kReadNoGrants : 0});
  });
  counters_->grant_misses.Add();
  table_.Queue(slot, Opcode::kRead);
}

void LaneImpl::OnReadReply(Slot slot, ByteSpan body) {
  Call& call = calls_[slot];
  ReadState& read = call.read;
  ReadRound& round = *read.round;
  ByteReader reader(body);
  DecodedRead decoded;
  const std::uint32_t ahead = read.no_grants ? 0 : read.want_ahead;
  if (!Decode(reader, decoded) ||
      !TakeGrants(call, decoded.reply, std::span(decoded.grants).first(decoded.count), ahead) ||
      decoded.bytes.size() > read.left() - round.length) {
    Finish(slot, Status(Code::kProtocolError, EIO, {}));
    return Hostile("answer to a read");
  }
  // The bytes begin where the grants end.
  const std::size_t at = read.into.offset + read.done + round.length;
  if (!decoded.bytes.empty()) {
    std::memcpy(memory_->bytes().data() + at, decoded.bytes.data(), decoded.bytes.size());
    counters_->inline_read_bytes.Add(decoded.bytes.size());
  }
  round.length += static_cast<std::uint32_t>(decoded.bytes.size());
  read.file_size = decoded.reply.file_size;
  round.ends_file = read.position() + round.length >= read.file_size;
  if (round.count > 0) return PostRound(slot);
  AfterRound(slot);
}

// Sets the round's pieces to what the grants hold of the asked range, from its start without a gap,
// and keeps all of them. False when one of them is not a grant that may be given here.
bool LaneImpl::TakeGrants(Call& call, const ReadReply& reply, std::span<const GrantWire> grants,
                          std::uint32_t want_ahead) {
  ReadState& read = call.read;
  ReadRound& round = *read.round;
  round.count = 0;
  round.length = 0;
  round.refused = false;
  const std::uint64_t from = read.position();
  const std::uint64_t end = from + read.left();
  std::array<CachedGrant, kMaxGrantsPerReply> cached;
  for (std::size_t i = 0; i < grants.size(); ++i) {
    if (!CheckGrant(grants[i], from, end + want_ahead)) return false;
    const CachedGrant& grant = cached[i] = CachedGrant::From(grants[i], call.asked);
    const std::uint64_t next = from + round.length;
    if (next >= end || grant.file_offset > next || grant.end() <= next) continue;
    const auto length = static_cast<std::uint32_t>(std::min(end, grant.end()) - next);
    round.pieces[round.count++] = {.grant = grant,
                                   .skip = static_cast<std::uint32_t>(next - grant.file_offset),
                                   .length = length};
    round.length += length;
  }
  grants_.Insert(call.open->inode_ref(), read.own_changes, reply.change, reply.file_size,
                 std::span(cached).first(grants.size()));
  return true;
}

bool LaneImpl::CheckGrant(const GrantWire& grant, std::uint64_t from, std::uint64_t end) const {
  const auto arena = arenas_.find(grant.arena);
  const auto words = arenas_.find(grant.generation_arena);
  if (arena == arenas_.end() || words == arenas_.end() || grant.generation == 0) return false;
  // One that names a byte of the asked range may begin an extent before it, and end an extent
  // behind what is wanted ahead.
  if (grant.length == 0 || grant.length > kMaxExtentBytes) return false;
  if (grant.file_offset > std::uint64_t{INT64_MAX} - grant.length) return false;
  if (grant.file_offset + grant.length + kMaxExtentBytes <= from) return false;
  if (grant.file_offset >= end + kMaxExtentBytes) return false;
  return Within(grant.arena_offset, grant.length, arena->second.length) &&
         Within(grant.generation_offset, kWord, words->second.length);
}

void LaneImpl::PostRound(Slot slot) {
  const ReadState& read = calls_[slot].read;
  ReadRound& round = *read.round;
  round.refused = false;
  const std::uint64_t most = std::max<std::uint64_t>(
      wire_.connection() == nullptr ? 0 : wire_.connection()->capabilities().max_transfer_bytes, 1);
  std::uint64_t at = read.into.offset + read.done;
  for (std::size_t i = 0; i < round.count; ++i) {
    const GrantPiece& piece = round.pieces[i];
    const transport::RemoteRegion& arena = arenas_[piece.grant.arena];
    for (std::uint64_t done = 0; done < piece.length;) {
      const std::uint64_t length = std::min(most, piece.length - done);
      table_.BeginLocal(slot);
      wire_.Read(slot, {.region = memory_.get(), .offset = at, .length = length},
                 {.region = arena, .offset = piece.grant.arena_offset + piece.skip + done},
                 transport::Order::kFree);
      done += length;
      at += length;
    }
  }
  PostGenerations(slot);
}

// One READ for each run of words that stand side by side, each behind the bytes.
void LaneImpl::PostGenerations(Slot slot) {
  const ReadRound& round = *calls_[slot].read.round;
  const std::uint64_t base = std::uint64_t{round.index} * ReadRound::kMaxPieces * kWord;
  for (std::size_t first = 0; first < round.count;) {
    const CachedGrant& grant = round.pieces[first].grant;
    std::size_t count = 1;
    while (first + count < round.count &&
           round.pieces[first + count].grant.generation_arena == grant.generation_arena &&
           round.pieces[first + count].grant.generation_offset ==
               grant.generation_offset + count * kWord) {
      ++count;
    }
    table_.BeginLocal(slot);
    wire_.Read(slot,
               {.region = control_.get(), .offset = base + first * kWord, .length = count * kWord},
               {.region = arenas_[grant.generation_arena], .offset = grant.generation_offset},
               transport::Order::kAfterEarlierReads);
    first += count;
  }
}

// Whether what was READ is what was granted.
bool LaneImpl::RoundHolds(const ReadRound& round) const {
  if (round.refused) return false;
  const std::size_t base = round.index * ReadRound::kMaxPieces * kWord;
  for (std::size_t i = 0; i < round.count; ++i) {
    const CachedGrant& grant = round.pieces[i].grant;
    ByteReader word(control_->bytes().subspan(base + i * kWord, kWord));
    if (word.Read<Le64>() != grant.generation || now_ > grant.expires) return false;
  }
  return true;
}

void LaneImpl::OnReadsDone(Slot slot) {
  Call& call = calls_[slot];
  ReadState& read = call.read;
  now_ = clock_.Now();  // no earlier than the bytes were read
  if (RoundHolds(*read.round)) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < read.round->count; ++i) bytes += read.round->pieces[i].length;
    counters_->read_bytes.Add(bytes);
    return AfterRound(slot);
  }
  counters_->grants_discarded.Add();
  grants_.DropFile(call.open->inode());
  read.no_grants = true;
  AskForRead(slot);
}

void LaneImpl::AfterRound(Slot slot) {
  Call& call = calls_[slot];
  ReadState& read = call.read;
  const bool empty = read.round->length == 0;
  read.done += read.round->length;
  if (read.left() == 0 || read.round->ends_file) {
    Answer answer;
    answer.read = {.length = read.done, .file_size = read.file_size};
    return Finish(slot, answer);
  }
  if (empty && read.no_grants) {
    Finish(slot, Status(Code::kProtocolError, EIO, {}));
    return Hostile("answer to a read: nothing, before the end of the file");
  }
  if (empty) read.no_grants = true;
  StartRead(slot);
}

// Asks for more grants before a sequential reader runs out of them.
void LaneImpl::PrefetchGrants(const Call& call) {
  const ReadState& read = call.read;
  if (read.want_ahead == 0) return;
  const std::shared_ptr<InodeState>& inode = call.open->inode_ref();
  const std::uint64_t end = read.offset + read.into.length;
  const GrantCache::Reach reach = grants_.ReachFrom(*inode, read.position(), Now());
  if (reach.to_end_of_file || reach.end >= end + read.want_ahead / 2) return;
  if (!prefetching_.insert(inode.get()).second) return;

  const std::uint64_t offset = std::max(reach.end, end);
  const std::uint32_t ahead = read.want_ahead;
  // As long as the reads are: what is granted are the extents that a read of it would take.
  const auto length = static_cast<std::uint32_t>(read.into.length);
  const std::uint64_t own_changes = inode->own_changes.load(std::memory_order_acquire);
  Completion completion = [this, inode, own_changes, offset, length, ahead](Answer& answer) {
    prefetching_.erase(inode.get());
    if (answer.status.ok()) OnPrefetched(inode, own_changes, offset, length + ahead, answer);
    return !answer.status.ok() || answer.body.ok();
  };
  Issue(
      call.context, Opcode::kRead, std::move(completion),
      [&](ByteWriter& writer) {
        writer.Write(ReadRequest{
            .open = 0, .offset = offset, .length = length, .want_ahead = ahead, .flags = 0});
      },
      call.open);
}

void LaneImpl::OnPrefetched(const std::shared_ptr<InodeState>& inode, std::uint64_t own_changes,
                            std::uint64_t offset, std::uint32_t reach, Answer& answer) {
  DecodedRead decoded;
  if (!Decode(answer.body, decoded)) return answer.body.Fail();
  std::array<CachedGrant, kMaxGrantsPerReply> cached;
  for (std::size_t i = 0; i < decoded.count; ++i) {
    if (!CheckGrant(decoded.grants[i], offset, offset + reach)) return answer.body.Fail();
    cached[i] = CachedGrant::From(decoded.grants[i], answer.asked);
  }
  grants_.Insert(inode, own_changes, decoded.reply.change, decoded.reply.file_size,
                 std::span(cached).first(decoded.count));
}

}  // namespace rdfs::fs::client
