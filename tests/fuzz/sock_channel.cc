// The memory that two ends of rdsock share: its words as a hostile peer may set them between any
// two steps, under both machines.
#include <sys/socket.h>

#include "tests/fuzz/fuzz.h"
#include "tools/sock/ring.h"

namespace rdfs::fuzz {
namespace {

using namespace sock;
using fuzz::Pieces;

constexpr std::uint32_t kLargest = 8192;

Channel& TheChannel() {
  static Channel channel = *Channel::Create(kLargest);
  return channel;
}

// One word takes a new value: near the old one, or any.
void Disturb(const Direction& direction, Pieces& pieces) {
  DirectionWords& words = *direction.words;
  std::array<std::atomic<std::uint64_t>*, 7> all{&words.gate,       &words.opens,    &words.open_at,
                                                 &words.ring_bytes, &words.consumed, &words.passed,
                                                 &words.tcp_reads};
  const std::uint8_t which = pieces.Byte();
  if (which >= 128) return;
  std::atomic<std::uint64_t>& word = *all[which % all.size()];
  if ((which & 64U) != 0) {
    word = pieces.Read<Le64>();
  } else {
    word += static_cast<std::uint64_t>(std::int64_t{static_cast<std::int8_t>(pieces.Byte())});
  }
}

void Forget(const Direction& direction) {
  DirectionWords& words = *direction.words;
  words.gate = Gate::kInitial;
  words.opens = words.open_at = words.ring_bytes = 0;
  words.consumed = words.passed = words.tcp_reads = 0;
  words.writer_armed = words.reader_armed = words.returned = words.abandoned = 0;
  words.kept = 0;
}

bool EndsCall(Sender::Step step) {
  return step == Sender::Step::kIdle || step == Sender::Step::kSleep ||
         step == Sender::Step::kWaitQuiet;
}
bool EndsCall(Receiver::Step step) {
  return step == Receiver::Step::kIdle || step == Receiver::Step::kSleep ||
         step == Receiver::Step::kWaitReturned;
}

void RunSender(Pieces pieces, Far far) {
  const Direction direction = TheChannel().Outgoing(Channel::Role::kHost);
  Forget(direction);
  Sender sender(0, kLargest, far);
  const Bytes bytes(64 * 1024, std::byte{'x'});
  while (!pieces.empty()) {
    Disturb(direction, pieces);
    const std::uint8_t wish = pieces.Byte();
    const SenderView view = LookAsSender(direction, {.hung_up = (wish & 1U) != 0, .far = far});
    const auto action = sender.Next(view, {.bytes = (wish & 2U) != 0 ? bytes.size() : 0,
                                           .ring = (wish & 4U) != 0,
                                           .leave = (wish & 8U) != 0,
                                           .sleep = (wish & 16U) != 0,
                                           .ring_bytes = kLeastRingBytes});
    if (action.step == Sender::Step::kBroken) return;
    if (EndsCall(action.step)) continue;
    Require(sender.ring_bytes() <= kLargest, "a ring is in its memory");
    std::size_t moved = 0;
    if (action.step == Sender::Step::kResend) {
      std::uint64_t all = 0;
      for (const ByteSpan piece :
           sock::Pieces(direction, sender.ring_bytes(), action.at, action.count)) {
        all += piece.size();
      }
      Require(all == action.count, "what is sent again is in the ring");
      sender.Done(action.count);
    } else if (!Carry(direction, sender, action, bytes, {}, moved)) {
      sender.Done(std::min<std::uint64_t>(action.count, pieces.Byte()));
    }
    Require(moved <= action.count, "no more is taken than was asked for");
  }
}

void RunReceiver(Pieces pieces, Far far) {
  const Direction direction = TheChannel().Incoming(Channel::Role::kHost);
  Forget(direction);
  Receiver receiver(0, kLargest, far);
  Bytes bytes(64 * 1024);
  const TimePoint now{};
  while (!pieces.empty()) {
    Disturb(direction, pieces);
    const std::uint8_t wish = pieces.Byte();
    const ReceiverView view = LookAsReceiver(
        direction, {.hung_up = (wish & 1U) != 0, .tcp_ended = (wish & 2U) != 0, .far = far});
    const auto action = receiver.Next(view,
                                      {.bytes = (wish & 4U) != 0 ? bytes.size() : 0,
                                       .follow = (wish & 8U) != 0,
                                       .leave = (wish & 16U) != 0,
                                       .sleep = (wish & 32U) != 0},
                                      now);
    if (action.step == Receiver::Step::kBroken || action.step == Receiver::Step::kEnd) return;
    if (EndsCall(action.step)) continue;
    Require(receiver.ring_bytes() <= kLargest, "a ring is in its memory");
    std::size_t moved = 0;
    if (!Carry(direction, receiver, action, bytes, {}, now, moved)) {
      receiver.Done(std::min<std::uint64_t>(action.count, pieces.Byte()), now);
    }
    Require(moved <= bytes.size(), "no more is filled than there is room");
  }
}

}  // namespace

void Run(ByteSpan input) {
  if (input.empty()) return;
  const auto which = std::to_integer<unsigned>(input[0]);
  const Far far = (which & 2U) == 0 ? Far::kEnd : Far::kCarrier;
  if (which % 2 == 0) {
    RunSender(Pieces(input.subspan(1)), far);
  } else {
    RunReceiver(Pieces(input.subspan(1)), far);
  }
}

std::vector<Bytes> Seeds() {
  Bytes sender{std::byte{0}}, receiver{std::byte{1}};
  for (int i = 0; i < 20; ++i) {
    Put(sender, std::array<std::byte, 2>{std::byte{128}, std::byte{6}});
    Put(receiver, std::array<std::byte, 2>{std::byte{128}, std::byte{12}});
  }
  // The peer opens a phase at 0 with 16 bytes in it: ring_bytes, opens, gate.
  Bytes phase{std::byte{1}};
  const auto set = [&](std::uint8_t word, std::uint64_t value) {
    // The first word of that index with bit 64: words repeat every seven.
    std::uint8_t which = 64;
    while (which % 7 != word) ++which;
    phase.push_back(static_cast<std::byte>(which));
    Put(phase, Le64(value));
    phase.push_back(std::byte{12});
  };
  set(3, 4096);
  set(1, 1);
  set(0, 16 << 2);
  for (int i = 0; i < 20; ++i) Put(phase, std::array<std::byte, 2>{std::byte{128}, std::byte{12}});
  return {sender, receiver, phase};
}

}  // namespace rdfs::fuzz
