// rdcp and rdcp: their messages, and what a far end's first line may say.
#include "tests/fuzz/fuzz.h"
#include "tools/copy/file/names.h"
#include "tools/copy/remote/errand.h"
#include "tools/copy/remote/own_binary.h"
#include "tools/copy/remote/sources.h"
#include "tools/copy/remote/wire.h"

namespace rdfs::fuzz {
namespace {

using namespace copy;

// Of one message.
Result<Begin> DecodeBegin(ByteSpan input) {
  BeginReader reader;
  RDFS_ASSIGN_OR_RETURN(const bool whole, reader.Take(input));
  if (!whole) return Status(Code::kProtocolError, "there is more to come");
  return reader.begin();
}

void CheckBegin(ByteSpan input) {
  Stable(
      input, DecodeBegin, [](const Begin& begin) { return begin.Encode()->front(); }, "begin");
  const auto begin = DecodeBegin(input);
  if (!begin.ok()) return;
  for (const Begin::Source& source : begin->sources) {
    Require(source.name.find('/') == source.name.npos && source.name != "..", "a source's name");
    Require(source.name.find('\0') == source.name.npos, "a source's name");
  }
  (void)CheckSources({"a", "b/*.c"}, *begin, begin->problems);
}

void CheckHave(ByteSpan input) {
  Stable(
      input, Have::Decode, [](const Have& have) { return have.Encode(); }, "have");
  const auto have = Have::Decode(input);
  if (!have.ok()) return;
  std::uint64_t end = 0;
  for (const Range& range : have->ranges) {
    Require(range.offset >= end && range.length > 0, "ranges are in order");
    end = range.offset + range.length;
    Require(end > range.offset, "ranges do not wrap");
  }
}

void CheckTask(Pieces pieces) {
  TaskReader reader;
  for (int messages = 0; messages < 64 && !pieces.empty(); ++messages) {
    const auto whole = reader.Take(pieces.Next());
    if (!whole.ok()) return;
    if (!*whole) continue;
    const auto encoded = EncodeTask(reader.task());
    Require(encoded.ok(), "a task that was understood can be told");
    TaskReader again;
    bool complete = false;
    for (const Bytes& message : *encoded) complete = *again.Take(message);
    Require(complete && again.task().names == reader.task().names &&
                again.task().rules == reader.task().rules &&
                again.task().listed == reader.task().listed,
            "a task is stable");
    return;
  }
}

void CheckRest(ByteSpan input) {
  Stable(
      input, Welcome::Decode, [](const Welcome& w) { return w.Encode(); }, "welcome");
  Stable(
      input, Want::Decode, [](const Want& want) { return want.Encode(); }, "want");
  Stable(
      input, Notice::Decode, [](const Notice& notice) { return notice.Encode(); }, "notice");
  Stable(
      input, Progress::Decode, [](const Progress& p) { return p.Encode(); }, "progress");
  Stable(
      input, Tally::Decode, [](const Tally& t) { return t.Encode(MessageType::kEnd); }, "tally");
  const auto batch = DecodeBatch(input, kMinSlotBytes);
  if (batch.ok()) Require(batch->length <= kMinSlotBytes, "a batch fits its slot");
  (void)DecodeCredit(input);
  (void)DecodeTotals(input);
  (void)DecodeMet(input);
  (void)CheckHello(input);
  (void)DecodePort(input);
  Require(!DecodeAbort(input).ok(), "an abort is an error");
}

void CheckLines(std::string_view text) {
  const auto line = FirstLine::Parse(text);
  if (line.ok()) {
    const auto again = FirstLine::Parse(line->ToString());
    Require(again.ok() && again->ToString() == line->ToString(), "a first line is stable");
  }
  (void)ParseSent("host", "Linux x86_64", text);
}

}  // namespace

void Run(ByteSpan input) {
  if (input.empty()) return;
  const ByteSpan rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 5) {
    case 0:
      return CheckBegin(rest);
    case 1:
      return CheckHave(rest);
    case 2:
      return CheckTask(Pieces(rest));
    case 3:
      return CheckRest(rest);
    default:
      return CheckLines(AsText(rest));
  }
}

std::vector<Bytes> Seeds() {
  Begin begin;
  begin.sources = {{0, true, "a"}, {1, false, "x.c"}};
  Have have{3, {{0, 4096}, {8192, 100}}};
  Task task;
  task.names = {"a", "b"};
  task.rules = {"+*.c", "-*"};
  Bytes messages;
  const auto encoded = EncodeTask(task);
  for (const Bytes& message : *encoded) PutSized16(messages, message);
  Welcome welcome{{0, 4 * kMinSlotBytes, 1}, kMinSlotBytes, 4};
  Notice notice{Notice::What::kFailed, "a/b", "no space"};
  return {Of(0, begin.Encode()->front()),
          Of(1, have.Encode()),
          Of(2, messages),
          Of(3, EncodeHello()),
          Of(3, welcome.Encode()),
          Of(3, Want{5, {1, 4}}.Encode()),
          Of(3, notice.Encode()),
          Of(3, Tally{1, 2, 3, 4, {}}.Encode(MessageType::kEnd)),
          Of(3, EncodeBatch(1, 100, {})),
          Of(3, EncodeAbort({Code::kErrno, "no space"})),
          Of(3, EncodeMet("shm")),
          Of(4, AsBytes("7000-7010")),
          Of(4, AsBytes("7000-7010 node 7001 key")),
          Of(4, AsBytes("RDCP-BINARY /tmp/x\n")),
          Of(3, EncodeTotals({.files = 3, .bytes = 4096})),
          Of(3, Progress{{.files = 1, .bytes = 100}, {.files = 2, .bytes = 4096}}.Encode())};
}

}  // namespace rdfs::fuzz
