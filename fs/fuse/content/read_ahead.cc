#include "fs/fuse/content/read_ahead.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fs/fuse/worker/worker.h"

namespace rdfs::fs::fuse {
namespace {

std::uint64_t WholePages(std::uint64_t bytes) {
  constexpr std::uint64_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

ReadAhead::ReadAhead(Filesystem& filesystem, client::Lane& lane, BufferTurns& turns)
    : filesystem_(filesystem),
      lane_(lane),
      turns_(turns),
      most_bytes_(lane.buffers().size_bytes() / 2) {}

bool ReadAhead::Serve(Request& request, const client::CallContext& caller,
                      const std::shared_ptr<Open>& open, std::uint64_t offset, std::uint32_t size) {
  if (streams_.empty()) return false;
  const auto found = Find(*open);
  if (found == streams_.end()) return false;
  Stream& stream = *found;
  stream.used = lane_.Now();
  DropUntrue(stream, open->node);
  DropPassed(stream);
  if (open->file->lost_errno() != 0) return false;
  const std::uint64_t end = offset + size;
  const bool covered = Covers(caller, open, stream, offset, end);
  // The kernel takes the end of a file from the first answer that is cut short: none behind the end
  // may overtake one in front of it.
  const bool waits_for_all = end > open->size;
  if (!covered && !waits_for_all) return false;
  // For the last one, behind which the others have come.
  for (auto piece = stream.pieces.rbegin(); piece != stream.pieces.rend(); ++piece) {
    if ((*piece)->offset >= end || (*piece)->here) continue;
    if ((*piece)->end() <= offset && !waits_for_all) break;
    // One that was asked for later may come later than this request has time.
    if ((*piece)->asked > request.worker().WaitsOf(request.unique()).since) return false;
    request.WaitForPiece(*piece);
    return true;
  }
  if (!covered) return false;
  std::array<iovec, kMostParts> parts;
  std::size_t count = 0;
  std::uint64_t at = offset;
  for (const std::shared_ptr<Piece>& piece : stream.pieces) {
    if (piece->end() <= at) continue;
    if (at >= end) break;
    const std::uint64_t till = std::min(end, piece->offset + piece->got);
    if (at < till) {
      if (count == parts.size()) return false;
      parts[count++] = {.iov_base = piece->buffer.bytes().data() + (at - piece->offset),
                        .iov_len = till - at};
      at = till;
    }
    if (piece->ends_file()) break;
  }
  if (at < end) {  // as plain reads have it: see ops::Read
    const std::lock_guard lock(open->mutex);
    if (open->IsReadBefore(offset)) return false;
  }
  if (filesystem_.page_writes.UnderWay(open->node, offset, size) != 0) {  // it began just now
    request.TakeUpAgain();
    return true;
  }
  if (at < end) filesystem_.inodes.EndsAt(open->node, at);
  filesystem_.read_ahead.served.fetch_add(1, std::memory_order_relaxed);
  request.Bytes(std::span(parts).first(count));
  stream.told = std::max(stream.told, at);
  for (const std::shared_ptr<Piece>& piece : stream.pieces) {
    const std::uint64_t from = std::max(offset, piece->offset);
    const std::uint64_t till = std::min(at, piece->offset + piece->got);
    if (from < till) piece->used += static_cast<std::uint32_t>(till - from);
  }
  while (!stream.pieces.empty() && stream.pieces.front()->here &&
         stream.pieces.front()->used >= stream.pieces.front()->got) {
    Drop(stream, 0);
    stream.most = std::min<std::uint64_t>(stream.most * 2, ReadAheadWindow::kMost);
  }
  return true;
}

// Whether all of it is here or under way, up to the file's end. What begins in a piece and ends
// behind the last one is asked for as the rest of it.
bool ReadAhead::Covers(const client::CallContext& caller, const std::shared_ptr<Open>& open,
                       Stream& stream, std::uint64_t offset, std::uint64_t end) {
  std::uint64_t at = offset;
  for (const std::shared_ptr<Piece>& piece : stream.pieces) {
    if (piece->end() <= at) continue;
    if (piece->offset > at) return false;
    if (piece->ends_file()) return true;
    at = piece->end();
    if (at >= end) return true;
  }
  if (at == offset || at != stream.next) return false;
  return Ask(caller, open, stream, stream.pieces.back()->standing,
             static_cast<std::uint32_t>(end - at));
}

ReadAhead::Mark ReadAhead::Asks(const Open& open) {
  const auto stream = Find(open);
  return {.asked = lane_.Now(), .came_then = stream == streams_.end() ? 0 : stream->window.came()};
}

void ReadAhead::Answered(const Open& open, std::uint64_t end, std::uint32_t length,
                         const Mark& mark) {
  const auto stream = Find(open);
  if (stream == streams_.end()) return;
  stream->told = std::max(stream->told, end);
  stream->window.Came(length, mark.asked, mark.came_then, lane_.Now());
}

void ReadAhead::Follow(const client::CallContext& caller, const std::shared_ptr<Open>& open,
                       std::uint64_t end, std::uint32_t wanted, bool may_ask) {
  // Two workers see the kernel's reads out of order.
  if (wanted == 0 && !may_ask && !open->closed) return;
  if (wanted == 0 || open->closed) return Closed(*open);
  const TimePoint now = lane_.Now();
  const auto stream = FindOrBegin(open, end, now);
  if (stream == streams_.end()) return;
  stream->used = now;
  stream->front = std::max(stream->front, end);
  stream->wanted = wanted;
  DropUntrue(*stream, open->node);
  if (may_ask && now >= rests_until_) TopUp(caller, open, *stream);
}

void ReadAhead::Closed(const Open& open) {
  if (streams_.empty()) return;
  if (const auto found = Find(open); found != streams_.end()) End(found);
}

void ReadAhead::End(Streams::iterator stream) {
  while (!stream->pieces.empty()) Drop(*stream, stream->pieces.size() - 1);
  streams_.erase(stream);
}

void ReadAhead::GiveBack() {
  if (streams_.empty()) return;
  rests_until_ = lane_.Now() + kRest;
  for (Stream& stream : streams_) {
    for (std::size_t i = stream.pieces.size(); i-- > 0;) {
      if (stream.pieces[i]->here) Drop(stream, i);
    }
    if (stream.pieces.empty()) stream.next = 0;
  }
}

ReadAhead::Streams::iterator ReadAhead::Find(const Open& open) {
  return std::find_if(streams_.begin(), streams_.end(), [&](const Stream& stream) {
    return stream.of == &open && !stream.open.expired();
  });
}

ReadAhead::Streams::iterator ReadAhead::FindOrBegin(const std::shared_ptr<Open>& open,
                                                    std::uint64_t at, TimePoint now) {
  if (const auto found = Find(*open); found != streams_.end()) return found;
  std::optional<std::uint32_t> fixed;
  if (filesystem_.options.prefetch_kib) fixed = *filesystem_.options.prefetch_kib * 1024U;
  const ReadAheadWindow window(lane_.round_trip(), fixed);
  EndIdle(now, nullptr);
  if (streams_.size() >= kMostStreams) return streams_.end();
  streams_.push_back({.of = open.get(), .open = open, .window = window, .told = at});
  return std::prev(streams_.end());
}

void ReadAhead::EndIdle(TimePoint now, const Stream* but) {
  for (auto stream = streams_.begin(); stream != streams_.end();) {
    const auto next = std::next(stream);
    const auto open = stream->open.lock();
    // Another worker may have closed it.
    const bool waits = std::any_of(stream->pieces.begin(), stream->pieces.end(),
                                   [](const auto& piece) { return !piece->here; });
    const bool idle = open == nullptr || open->closed || (!waits && now - stream->used >= kIdle);
    if (idle && &*stream != but) End(stream);
    stream = next;
  }
}

void ReadAhead::TopUp(const client::CallContext& caller, const std::shared_ptr<Open>& open,
                      Stream& stream) {
  const TimePoint now = lane_.Now();
  if (now < stream.pauses_until || !lane_.connected()) return;
  const auto standing = filesystem_.inodes.FindStanding(open->node, now);
  if (standing && standing->until != stream.lease_end) {
    stream.lease_end = standing->until;
    stream.renew_at = now + (standing->until - now) / 2;
  } else if (!standing && now < stream.lease_end) {  // recalled
    stream.lease_end = stream.renew_at = {};
    stream.pauses_until = now + kPause;
    return;
  }
  if (now >= stream.renew_at) Renew(caller, open, stream);
  if (!standing) return;
  // The kernel asks for whole pages, and the answer that is cut short tells where the end is.
  const std::uint64_t size = WholePages(open->size);
  const std::uint32_t piece = stream.window.PieceBytes(filesystem_.transfer_bytes);
  const std::uint64_t share = most_bytes_ / streams_.size();
  const std::uint64_t window =
      std::min<std::uint64_t>({stream.window.bytes(), stream.wanted, share, stream.most});
  const std::uint64_t limit = std::min(stream.told + window, size);
  stream.next = std::max(stream.next, stream.front);
  while (stream.next < limit) {
    // Whole pieces, so that their ends lie where those of the server's extents do.
    const std::uint64_t end = std::min(
        {(stream.next / piece + 1) * piece, size, stream.next + WholePages(stream.wanted)});
    if (end > limit && !stream.pieces.empty()) return;
    if (!Ask(caller, open, stream, *standing, static_cast<std::uint32_t>(end - stream.next))) {
      return;
    }
  }
}

bool ReadAhead::Ask(const client::CallContext& caller, const std::shared_ptr<Open>& open,
                    Stream& stream, const InodeTable::Standing& standing, std::uint32_t bytes) {
  if (bytes_ + bytes > most_bytes_) EndIdle(lane_.Now(), &stream);
  if (bytes_ + bytes > most_bytes_ || !turns_.MayTake(bytes, lane_.Now(), 0)) return false;
  std::optional<client::Buffer> buffer = lane_.buffers().Allocate(bytes);
  if (!buffer) return false;
  const transport::LocalSlice into = buffer->Slice(0, bytes);
  const auto piece = std::make_shared<Piece>(bytes_, stream.next, bytes, std::move(*buffer));
  piece->standing = standing;
  piece->asked = lane_.Now();
  piece->came_then = stream.window.came();
  stream.pieces.push_back(piece);
  stream.next += bytes;
  filesystem_.read_ahead.bytes.fetch_add(bytes, std::memory_order_relaxed);
  client::CallContext context = caller;
  context.timeout.reset();  // how long its request had left
  lane_.Read(
      context, open->file, piece->offset, into, stream.wanted,
      [this, open, piece](const Result<client::ReadDone>& done) { Came(open, piece, done); });
  return true;
}

void ReadAhead::Came(const std::shared_ptr<Open>& open, const std::shared_ptr<Piece>& piece,
                     const Result<client::ReadDone>& done) {
  piece->here = true;
  const auto found = Find(*open);
  const bool wanted =
      found != streams_.end() &&
      std::find(found->pieces.begin(), found->pieces.end(), piece) != found->pieces.end();
  if (!wanted) {
    if (done.ok()) filesystem_.read_ahead.unused.fetch_add(done->length, std::memory_order_relaxed);
    return;
  }
  if (!done.ok()) {  // whoever asks for it is told why
    found->pauses_until = lane_.Now() + kPause;
    while (found->pieces.back() != piece) Drop(*found, found->pieces.size() - 1);
    Drop(*found, found->pieces.size() - 1);
    found->next = piece->offset;
    return;
  }
  piece->got = done->length;
  open->size = done->file_size;
  found->window.Came(done->length, piece->asked, piece->came_then, lane_.Now());
}

void ReadAhead::Renew(const client::CallContext& caller, const std::shared_ptr<Open>& open,
                      Stream& stream) {
  const auto handle = filesystem_.inodes.Find(open->node);
  if (!handle || stream.renewing) return;
  stream.renewing = true;
  // Where others write to the file, or the server gives none, there is none to be had for long.
  stream.renew_at = lane_.Now() + kRenewal;
  client::CallContext context = caller;
  context.timeout.reset();
  lane_.GetAttr(context, *handle, open->file,
                [this, open,
                 stamp = filesystem_.kernel.stamp()](const Result<client::Attributes>& attributes) {
                  if (const auto found = Find(*open); found != streams_.end()) {
                    found->renewing = false;
                  }
                  if (!attributes.ok()) return;
                  open->size = attributes->attr.size;
                  // What is read ahead under this lease is not to come by grants from before it.
                  lane_.SeeChange(open->file->handle(), attributes->attr.change);
                  filesystem_.Believe(open->node, attributes->expires, attributes->attr, stamp);
                });
}

void ReadAhead::DropUntrue(Stream& stream, NodeId node) {
  if (stream.pieces.empty()) return;
  const TimePoint now = lane_.Now();
  const auto standing = filesystem_.inodes.FindStanding(node, now);
  const bool changed = !standing || standing->number != stream.pieces.front()->standing.number ||
                       standing->number != stream.pieces.back()->standing.number;
  // The oldest are in front.
  while (!stream.pieces.empty() && (changed || now >= stream.pieces.front()->standing.until)) {
    const bool too_old = !changed && stream.pieces.front()->here;
    if (too_old) {
      stream.most =
          std::max(kLeastOfSlow, std::min<std::uint64_t>(stream.most, stream.window.bytes()) / 2);
    }
    Drop(stream, 0);
  }
  if (stream.pieces.empty()) stream.next = 0;
  if (standing && changed) stream.pauses_until = now + kPause;
}

void ReadAhead::DropPassed(Stream& stream) {
  while (!stream.pieces.empty() && stream.pieces.front()->end() + kSlack <= stream.told) {
    Drop(stream, 0);
  }
}

void ReadAhead::Drop(Stream& stream, std::size_t index) {
  const Piece& piece = *stream.pieces[index];
  if (piece.here && piece.used < piece.got) {
    filesystem_.read_ahead.unused.fetch_add(piece.got - piece.used, std::memory_order_relaxed);
  }
  stream.pieces.erase(stream.pieces.begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace rdfs::fs::fuse
