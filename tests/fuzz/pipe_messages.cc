// rdsend and rdrecv: their messages, both state machines under a peer that says anything, and the
// bytes of records (zstd, checksums) as a ring holds them.
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "tools/pipe/receive/receive_state.h"
#include "tools/pipe/send/send_state.h"
#include "tools/pipe/wire/codec.h"

namespace rdfs::fuzz {
namespace {

using namespace pipe;

constexpr std::uint32_t kSlotBytes = 4096, kSlots = 4;
const TimePoint kStart{};

void CheckMessages(ByteSpan input) {
  Stable(
      input, Hello::Decode, [](const Hello& hello) { return hello.Encode(); }, "hello");
  Stable(
      input, Welcome::Decode, [](const Welcome& w) { return w.Encode(); }, "welcome");
  Stable(input, DecodeReport, EncodeReport, "report");
  const auto record = DecodeRecord(input, kSlotBytes);
  if (record.ok()) {
    const bool hole = record->kind == static_cast<std::uint8_t>(RecordKind::kHole);
    Require(record->wire_bytes <= kSlotBytes, "a record fits its slot");
    Require(hole || record->length <= kSlotBytes, "and what it becomes fits one, too");
  }
  Require(!DecodeAbort(input).ok(), "an abort is an error");
  (void)DecodeEnd(input);
  (void)DecodeNumber(input);
}

Welcome OurWelcome() {
  Welcome welcome;
  welcome.ring = {0, std::uint64_t{kSlotBytes} * kSlots, 1};
  welcome.slot_bytes = kSlotBytes;
  welcome.slots = kSlots;
  return welcome;
}

void CheckReceiver(Pieces pieces) {
  ReceiveState state(std::nullopt, std::nullopt, std::chrono::seconds(60), kStart);
  ReceiveActions out;
  state.OnOpened(OurWelcome(), kStart, out);
  std::size_t looked_at = 0;
  std::uint64_t unstored = 0;
  while (!state.over() && !pieces.empty()) {
    state.OnMessage(pieces.Next(), kStart, out);
    for (; looked_at < out.size() && !state.over(); ++looked_at) {
      const ReceiveAction action = out[looked_at];
      if (action.kind == ReceiveAction::Kind::kFinishFile) state.OnFinished({}, kStart, out);
      if (action.kind != ReceiveAction::Kind::kStore) continue;
      Require(action.slot < kSlots, "a record is in the ring");
      Require(++unstored <= kSlots, "no more records than slots");
      Require(action.record.length <= std::uint64_t{1} << 63U, "lengths stay in range");
      if (pieces.Byte() % 4 == 0) continue;  // that one is never stored
      --unstored;
      state.OnStored(action.record.sequence, kStart, out);
    }
  }
}

void CheckSender(Pieces pieces) {
  SendState state(std::nullopt, std::nullopt, std::chrono::seconds(60), kStart);
  SendActions out;
  std::uint64_t number = 0, offset = 0;
  std::size_t looked_at = 0;
  while (!state.over() && !pieces.empty()) {
    state.OnMessage(pieces.Next(), kStart, out);
    for (; looked_at < out.size(); ++looked_at) {
      const SendAction action = out[looked_at];
      if (action.kind == SendAction::Kind::kCheck) state.OnChecked(0, kStart, out);
      if (action.kind == SendAction::Kind::kWrite) {
        Require(action.slot < state.welcome().slots, "a WRITE is in the peer's ring");
        Require(action.length <= state.welcome().slot_bytes, "a WRITE is in its slot");
      }
      if (action.kind != SendAction::Kind::kStart) continue;
      RecordMaker maker(std::nullopt, std::nullopt, state.welcome().slot_bytes);
      for (std::uint32_t i = 0; i < 3; ++i) {
        const auto hole = maker.MakeHole(number++, offset, 10);
        offset += 10;
        state.OnRecord({*hole, std::nullopt}, kStart, out);
      }
      state.OnSourceEnd(number, offset, kStart, out);
    }
  }
}

// A record's message and what its slot holds.
void CheckRecord(ByteSpan input) {
  const auto record =
      DecodeRecord(input.first(std::min(input.size(), sizeof(RecordWire))), kSlotBytes);
  if (!record.ok()) return;
  Bytes slot(kSlotBytes);
  const ByteSpan rest = input.subspan(sizeof(RecordWire));
  std::memcpy(slot.data(), rest.data(), std::min(rest.size(), slot.size()));
  RecordTaker taker(std::nullopt, kSlotBytes);
  const auto bytes = taker.Take(*record, slot);
  if (bytes.ok()) Require(bytes->size() <= kSlotBytes, "a record's bytes are bounded");
}

}  // namespace

void Run(ByteSpan input) {
  if (input.empty()) return;
  const ByteSpan rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 4) {
    case 0:
      return CheckMessages(rest);
    case 1:
      return CheckReceiver(Pieces(rest));
    case 2:
      return CheckSender(Pieces(rest));
    default:
      return CheckRecord(rest);
  }
}

std::vector<Bytes> Seeds() {
  Hello hello;
  hello.size_known = true;
  hello.size = 100;
  hello.forward = {"b:1", "[::1]:2"};
  Welcome welcome = OurWelcome();
  welcome.block_bytes = 4096;
  welcome.have_bytes = 5000;
  welcome.blocks.resize(2);
  Bytes slot(kSlotBytes), receive, send;
  RecordMaker plain(std::nullopt, std::nullopt, kSlotBytes);
  std::memset(plain.Place(slot).data(), 'x', 100);
  const Bytes record = ToBytes(*plain.Make(0, 0, 100, slot));
  PutSized16(receive, EncodeNumber(MessageType::kBegin, 0));
  PutSized16(receive, record);
  receive.push_back(std::byte{1});
  PutSized16(receive, EncodeBare(MessageType::kPing));
  PutSized16(
      receive,
      ToBytes(EndWire{.type = 4, .zero = {}, .number = 1, .length = 100, .digest = {}, .tag = {}}));
  PutSized16(send, welcome.Encode());
  PutSized16(send, EncodeNumber(MessageType::kCredit, 2));
  PutSized16(send, EncodeReport({"b:1", {Code::kErrno, "no space"}}));
  PutSized16(send, EncodeAbort({Code::kErrno, "no space"}));
  RecordMaker packed(3, std::nullopt, kSlotBytes);
  std::memset(packed.Place(slot).data(), 'x', 1000);
  Bytes compressed = ToBytes(*packed.Make(0, 0, 1000, slot));
  const Bytes small = compressed;
  Put(compressed, ByteSpan(slot).first(100));
  return {Of(0, hello.Encode()),
          Of(0, small),
          Of(0, welcome.Encode()),
          Of(0, record),
          Of(0, EncodeReport({"b:1", {Code::kErrno, "no space"}})),
          Of(0, EncodeAbort({Code::kErrno, "no space"})),
          Of(1, receive),
          Of(2, send),
          Of(3, compressed)};
}

}  // namespace rdfs::fuzz
