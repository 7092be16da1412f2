// The bytes of every message as PROTOCOL.md says, and what no correct peer sends.
#include "tools/copy/remote/wire.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/hex.h"

namespace rdfs::copy {
namespace {

Digest Pattern() {
  Digest out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(0x10 + i);
  return out;
}
constexpr std::string_view kPatternHex = "101112131415161718191a1b1c1d1e1f";

// Every message that is one byte longer or shorter is refused.
template <typename Decode>
void ExpectExactLength(Bytes message, Decode decode) {
  EXPECT_TRUE(decode(message));
  for (std::size_t size = 0; size < message.size(); ++size) {
    EXPECT_FALSE(decode(ByteSpan(message).first(size))) << size;
  }
  message.push_back(std::byte{0});
  EXPECT_FALSE(decode(message));
}

TEST(CopyWire, GoldenHello) {
  EXPECT_EQ(ToHex(EncodeHello()),
            "52444350"
            "0100"
            "0000"
            "00000000"
            "00000000");
  EXPECT_TRUE(CheckHello(EncodeHello()).ok());
  Bytes other = EncodeHello();
  other[4] = std::byte{2};
  EXPECT_EQ(CheckHello(other).code(), Code::kVersionMismatch);
  other = EncodeHello();
  other[8] = std::byte{1};
  EXPECT_EQ(CheckHello(other).code(), Code::kUnsupported);
  other = EncodeHello();
  other[0] = std::byte{'X'};
  EXPECT_EQ(CheckHello(other).code(), Code::kProtocolError);
  EXPECT_FALSE(CheckHello({}).ok());
}

TEST(CopyWire, GoldenMeet) {
  TaskDigest only{};
  for (std::size_t i = 0; i < only.size(); ++i) only[i] = static_cast<std::byte>(i + 1);
  const Bytes request = EncodeMeet(only);
  EXPECT_EQ(ToHex(request), ToHex(EncodeHello()) +
                                "0102030405060708090a0b0c0d0e0f10"
                                "1112131415161718191a1b1c1d1e1f20");
  ASSERT_TRUE(DecodeMeet(request).ok());
  EXPECT_EQ(*DecodeMeet(request), only);
  EXPECT_FALSE(DecodeMeet(EncodeHello()).ok());
  EXPECT_FALSE(DecodeMeet(ByteSpan(request).first(request.size() - 1)).ok());
}

Task SomeTask() {
  Task task;
  task.role = Task::Role::kSends;
  task.further_lanes = 3;
  task.recurse = task.one_file_system = true;
  task.keep = Keep::Attributes();
  task.names = {"a b", "", "\xff*"};
  task.rules = {"-*.o"};
  task.has_list = true;
  task.limit = 1 << 20;
  task.listed = {"a/b"};
  return task;
}

// Whatever is another in a task, its digest is.
TEST(CopyWire, ADigestStandsForOneTask) {
  Task across = SomeTask();
  across.role = Task::Role::kForwards;
  across.names = {"dst", "src", "other"};
  const Task receives = TaskOfOther(across);
  EXPECT_EQ(receives.role, Task::Role::kReceives);
  EXPECT_EQ(receives.names, across.names);
  across.asks = true;
  across.counts = true;
  EXPECT_EQ(*DigestOf(TaskOfOther(across)), *DigestOf(receives)) << "it tells and asks nothing";
  across.role = Task::Role::kFetches;
  const Task sends = TaskOfOther(across);
  EXPECT_EQ(sends.role, Task::Role::kSends);
  EXPECT_EQ(sends.names, (std::vector<std::string>{"src", "other"}));

  const auto digest = DigestOf(receives);
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(*DigestOf(receives), *digest);
  EXPECT_NE(*DigestOf(sends), *digest);
  for (const auto& change : std::vector<std::function<void(Task&)>>{
           [](Task& task) { task.names[0] = "~/.ssh"; },
           [](Task& task) { task.names[1] = ".bashrc"; }, [](Task& task) { task.names.pop_back(); },
           [](Task& task) { task.in_place = !task.in_place; },
           [](Task& task) { task.remove = !task.remove; },
           [](Task& task) { task.keep.owner = !task.keep.owner; },
           [](Task& task) { task.rules = {"+*.o"}; }}) {
    Task other = receives;
    change(other);
    EXPECT_NE(*DigestOf(other), *digest);
  }
}

TEST(CopyWire, GoldenTask) {
  const auto messages = EncodeTask(SomeTask());
  ASSERT_TRUE(messages.ok());
  ASSERT_EQ(messages->size(), 2U);
  EXPECT_EQ(ToHex((*messages)[0]),
            "01"
            "01"
            "03"
            "00"
            "09100000"
            "0f000000"
            "03000000"
            "01000000"
            "01000000"
            "0000100000000000");
  EXPECT_EQ(ToHex((*messages)[1]),
            "02"
            "00"
            "0500"
            "0300"
            "612062"
            "0000"
            "0200"
            "ff2a"
            "0400"
            "2d2a2e6f"
            "0300"
            "612f62");
  TaskReader reader;
  auto complete = reader.Take((*messages)[0]);
  ASSERT_TRUE(complete.ok());
  EXPECT_FALSE(*complete);
  complete = reader.Take((*messages)[1]);
  ASSERT_TRUE(complete.ok());
  EXPECT_TRUE(*complete);
  EXPECT_EQ(reader.task().names, SomeTask().names);
  EXPECT_EQ(reader.task().rules, SomeTask().rules);
  EXPECT_EQ(reader.task().listed, SomeTask().listed);
  EXPECT_EQ(reader.task().limit, SomeTask().limit);
  EXPECT_EQ(reader.task().further_lanes, SomeTask().further_lanes);
  EXPECT_TRUE(reader.task().recurse && reader.task().one_file_system && !reader.task().follow);
  EXPECT_TRUE(reader.task().keep.acls && !reader.task().keep.links);
}

TEST(CopyWire, ALongTaskTakesManyMessages) {
  Task task = SomeTask();
  task.names.assign(500, std::string(4096, 'x'));
  task.names.back() = "last";
  const auto messages = EncodeTask(task);
  ASSERT_TRUE(messages.ok());
  TaskReader reader;
  for (const Bytes& message : *messages) {
    EXPECT_LE(message.size(), transport::kMaxMessageBytes);
    const auto complete = reader.Take(message);
    ASSERT_TRUE(complete.ok()) << complete.status().message();
    EXPECT_EQ(*complete, &message == &messages->back());
  }
  EXPECT_EQ(reader.task().names, task.names);
}

TEST(CopyWire, TasksThatAreNone) {
  Task task = SomeTask();
  task.names = {std::string(4097, 'x')};
  EXPECT_FALSE(EncodeTask(task).ok());
  task.names.assign(1100, std::string(4096, 'x'));
  EXPECT_FALSE(EncodeTask(task).ok());
  task.names = {std::string("a\0b", 3)};
  EXPECT_FALSE(EncodeTask(task).ok());

  const auto good = EncodeTask(SomeTask());
  const auto head = [&](std::size_t at, std::uint8_t value) {
    Bytes message = (*good)[0];
    message[at] = std::byte{value};
    return TaskReader().Take(message).status().code();
  };
  EXPECT_EQ(head(1, 0), Code::kUnsupported) << "no role";
  EXPECT_EQ(head(1, 5), Code::kUnsupported);
  EXPECT_EQ(head(2, 8), Code::kUnsupported) << "too many lanes";
  EXPECT_EQ(head(3, 1), Code::kUnsupported);
  EXPECT_EQ(head(6, 2), Code::kUnsupported) << "unknown options";
  EXPECT_EQ(head(9, 1), Code::kUnsupported) << "unknown things to keep";
  EXPECT_EQ(head(12, 0), Code::kProtocolError) << "no names";
  EXPECT_EQ(head(14, 0xff), Code::kProtocolError) << "millions of names";
  EXPECT_EQ(head(18, 0xff), Code::kProtocolError) << "millions of patterns";
  EXPECT_EQ(head(22, 0xff), Code::kProtocolError) << "millions of listed paths";
  EXPECT_FALSE(TaskReader().Take((*good)[1]).ok()) << "names first";

  for (std::size_t size = 0; size < (*good)[1].size(); ++size) {
    TaskReader reader;
    ASSERT_TRUE(reader.Take((*good)[0]).ok());
    const auto taken = reader.Take(ByteSpan((*good)[1]).first(size));
    EXPECT_FALSE(taken.ok() && *taken) << size;
  }
}

// Of one message.
Result<Begin> DecodeBegin(ByteSpan message) {
  BeginReader reader;
  RDFS_ASSIGN_OR_RETURN(const bool whole, reader.Take(message));
  if (!whole) return Status(Code::kProtocolError, "there is more to come");
  return reader.begin();
}

TEST(CopyWire, GoldenBegin) {
  Begin begin;
  begin.sources = {{.asked = 2, .is_directory = true, .name = "d"},
                   {.asked = 3, .is_directory = false, .name = ""}};
  begin.problems = 5;
  begin.boot.fill(std::byte{0xbb});
  const auto messages = begin.Encode();
  ASSERT_TRUE(messages.ok() && messages->size() == 1);
  const Bytes& message = messages->front();
  EXPECT_EQ(ToHex(message),
            "03"
            "00"
            "0000"
            "02000000"
            "0500000000000000"
            "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
            "02000000"
            "01"
            "0100"
            "64"
            "03000000"
            "00"
            "0000");
  const auto decoded = DecodeBegin(message);
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->sources.size(), 2U);
  EXPECT_EQ(decoded->sources[0].name, "d");
  EXPECT_TRUE(decoded->sources[0].is_directory);
  EXPECT_EQ(decoded->problems, 5U);
  ExpectExactLength(message, [](ByteSpan bytes) { return DecodeBegin(bytes).ok(); });
}

TEST(CopyWire, ABeginOfManySourcesTakesSeveralMessages) {
  Begin begin;
  begin.problems = 2;
  for (std::uint32_t i = 0; i < 10'000; ++i)
    begin.sources.push_back({i, false, "a name of some length"});
  const auto messages = begin.Encode();
  ASSERT_TRUE(messages.ok());
  ASSERT_EQ(messages->size(), 3U);
  BeginReader reader;
  for (const Bytes& message : *messages) {
    EXPECT_LE(message.size(), transport::kMaxMessageBytes);
    EXPECT_LT(reader.begin().sources.size(), begin.sources.size()) << "it is not complete before";
    const auto taken = reader.Take(message);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    EXPECT_EQ(*taken, &message == &messages->back());
  }
  ASSERT_EQ(reader.begin().sources.size(), begin.sources.size());
  EXPECT_EQ(reader.begin().sources.back().asked, 9999U);
  EXPECT_EQ(reader.begin().problems, 2U);
  EXPECT_FALSE(reader.Take(messages->back()).ok()) << "more than were announced";

  const auto behind_the_first = [&](const Bytes& second) {
    BeginReader another;
    EXPECT_TRUE(another.Take(messages->front()).ok());
    return another.Take(second).ok();
  };
  Bytes second = (*messages)[1];
  EXPECT_TRUE(behind_the_first(second));
  second[8] ^= std::byte{1};
  EXPECT_FALSE(behind_the_first(second)) << "another head";
  second = (*messages)[1];
  second.resize(sizeof(BeginWire));
  EXPECT_FALSE(behind_the_first(second)) << "nothing in it";
  begin.sources.assign(17'000, {0, false, std::string(255, 'n')});
  EXPECT_EQ(begin.Encode().status().code(), Code::kInvalidArgument) << "more than 4 MiB";
}

TEST(CopyWire, NamesOfSourcesThatLeadElsewhereAreRefused) {
  for (const std::string name : {"..", ".", "a/b", "/etc", "../x"}) {
    Begin begin;
    begin.sources = {{.asked = 0, .is_directory = true, .name = name}};
    EXPECT_FALSE(DecodeBegin(begin.Encode()->front()).ok()) << name;
  }
  Bytes many(32 + 7);
  many[0] = std::byte{3};
  for (std::size_t i = 4; i < 8; ++i) many[i] = std::byte{0xff};
  EXPECT_FALSE(BeginReader().Take(many).ok()) << "four thousand million sources in seven bytes";
}

TEST(CopyWire, GoldenWelcome) {
  const Welcome welcome{{.address = 0x1000, .length = 0x800000, .key = 0x99}, 0x100000, 8};
  EXPECT_EQ(ToHex(welcome.Encode()),
            "04"
            "000000"
            "00001000"
            "08000000"
            "00000000"
            "0010000000000000"
            "0000800000000000"
            "9900000000000000");
  ExpectExactLength(welcome.Encode(), [](ByteSpan bytes) { return Welcome::Decode(bytes).ok(); });
  for (const Welcome& bad : {Welcome{welcome.ring, 0x100000, 9}, Welcome{welcome.ring, 0x100000, 0},
                             Welcome{welcome.ring, 4096, 8}, Welcome{welcome.ring, 0xffffffff, 1},
                             Welcome{{0, ~0ULL, 0}, 0x100000, 65}}) {
    EXPECT_FALSE(Welcome::Decode(bad.Encode()).ok());
  }
}

TEST(CopyWire, GoldenBatch) {
  const Bytes batch = EncodeBatch(7, 0x11223344, Pattern());
  EXPECT_EQ(ToHex(batch),
            "05"
            "000000"
            "44332211"
            "0700000000000000" +
                std::string(kPatternHex));
  EXPECT_TRUE(DecodeBatch(batch, 0x11223344).ok());
  EXPECT_FALSE(DecodeBatch(batch, 0x11223343).ok()) << "more than a slot";
  ExpectExactLength(batch, [](ByteSpan bytes) { return DecodeBatch(bytes, 0x7fffffff).ok(); });
}

TEST(CopyWire, GoldenTotals) {
  const Bytes message = EncodeTotals({.files = 3, .bytes = 0x0102});
  EXPECT_EQ(ToHex(message),
            "12"
            "00000000000000"
            "0300000000000000"
            "0201000000000000");
  ExpectExactLength(message, [](ByteSpan bytes) { return DecodeTotals(bytes).ok(); });
  EXPECT_EQ(DecodeTotals(message)->files, 3U);
  EXPECT_EQ(DecodeTotals(message)->bytes, 0x0102U);
  EXPECT_EQ(TypeOf(message), MessageType::kTotals);
}

TEST(CopyWire, GoldenProgress) {
  const Progress progress{{.files = 3, .bytes = 0x0102}, {.files = 5, .bytes = 0x0304}};
  EXPECT_EQ(ToHex(progress.Encode()),
            "14"
            "00000000000000"
            "0300000000000000"
            "0201000000000000"
            "0500000000000000"
            "0403000000000000");
  ExpectExactLength(progress.Encode(), [](ByteSpan bytes) { return Progress::Decode(bytes).ok(); });
  EXPECT_EQ(Progress::Decode(progress.Encode())->copied.bytes, 0x0102U);
  EXPECT_EQ(Progress::Decode(progress.Encode())->passed.files, 5U);
  EXPECT_EQ(TypeOf(progress.Encode()), MessageType::kProgress);
  EXPECT_FALSE(TypeOf(Bytes{std::byte{21}}).has_value());
}

TEST(CopyWire, GoldenBareMessages) {
  for (const auto& [type, hex] : {std::pair{MessageType::kPing, "0b"},
                                  {MessageType::kFarewell, "0c"},
                                  {MessageType::kReady, "10"},
                                  {MessageType::kMoved, "11"},
                                  {MessageType::kGo, "13"}}) {
    EXPECT_EQ(ToHex(EncodeBare(type)), hex);
    EXPECT_EQ(TypeOf(EncodeBare(type)), type);
  }
}

TEST(CopyWire, GoldenCreditAndTally) {
  EXPECT_EQ(ToHex(EncodeCredit(9)),
            "06"
            "00000000000000"
            "0900000000000000");
  ExpectExactLength(EncodeCredit(9), [](ByteSpan bytes) { return DecodeCredit(bytes).ok(); });
  const Tally tally{1, 2, 3, 4, Pattern()};
  EXPECT_EQ(ToHex(tally.Encode(MessageType::kEnd)),
            "08"
            "00000000000000"
            "0100000000000000"
            "0200000000000000"
            "0300000000000000"
            "0400000000000000" +
                std::string(kPatternHex));
  ExpectExactLength(tally.Encode(MessageType::kDone),
                    [](ByteSpan bytes) { return Tally::Decode(bytes).ok(); });
}

TEST(CopyWire, GoldenNotice) {
  const Notice notice{Notice::What::kVanished, "a/b", "gone"};
  EXPECT_EQ(ToHex(notice.Encode()),
            "07"
            "02"
            "0000"
            "0300"
            "612f62"
            "0400"
            "676f6e65");
  ExpectExactLength(notice.Encode(), [](ByteSpan bytes) { return Notice::Decode(bytes).ok(); });
  const Notice huge{Notice::What::kFailed, std::string(100'000, 'p'), std::string(100'000, 's')};
  const auto cut = Notice::Decode(huge.Encode());
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->path.size(), kMaxPathInMessage);
  EXPECT_EQ(cut->sentence.size(), kMaxSentence);
  Bytes unknown = notice.Encode();
  unknown[1] = std::byte{9};
  EXPECT_FALSE(Notice::Decode(unknown).ok());
}

TEST(CopyWire, GoldenWant) {
  const Want want{7, {3, 5}};
  EXPECT_EQ(ToHex(want.Encode()),
            "0d"
            "00"
            "0200"
            "0700000000000000"
            "0300000000000000"
            "0500000000000000");
  ExpectExactLength(want.Encode(), [](ByteSpan bytes) { return Want::Decode(bytes).ok(); });
  EXPECT_EQ(Want::Decode(want.Encode())->numbers, want.numbers);
}

TEST(CopyWire, GoldenHave) {
  const Have have{7, {{1, 2}, {3, 5}}};
  EXPECT_EQ(ToHex(have.Encode()),
            "0f"
            "00"
            "0200"
            "0700000000000000"
            "0100000000000000"
            "0200000000000000"
            "0300000000000000"
            "0500000000000000");
  ExpectExactLength(have.Encode(), [](ByteSpan bytes) { return Have::Decode(bytes).ok(); });
  EXPECT_EQ(Have::Decode(have.Encode())->ranges, have.ranges);
  const auto accepts = [](const std::vector<Range>& ranges) {
    return Have::Decode(Have{0, ranges}.Encode()).ok();
  };
  EXPECT_FALSE(accepts({}));
  EXPECT_FALSE(accepts({{1, 0}}));
  EXPECT_FALSE(accepts({{1, 2}, {2, 5}}));
  EXPECT_FALSE(accepts({{5, 1}, {1, 2}}));
  EXPECT_FALSE(accepts({{~std::uint64_t{0}, 2}}));
  EXPECT_TRUE(accepts(std::vector<Range>(1, {0, 1})));
}

TEST(CopyWire, GoldenMet) {
  EXPECT_EQ(ToHex(EncodeMet("tcp")),
            "0e"
            "00"
            "0300"
            "746370");
  EXPECT_EQ(*DecodeMet(EncodeMet("tcp")), "tcp");
  ExpectExactLength(EncodeMet("tcp"), [](ByteSpan bytes) { return DecodeMet(bytes).ok(); });
  EXPECT_EQ(DecodeMet(EncodeMet(std::string(100'000, 'x')))->size(), kMaxSentence);
  EXPECT_EQ(DecodeMet(EncodeMet("\x1b[31m"))->find('\x1b'), std::string::npos);
}

TEST(CopyWire, AbortIsShownSafely) {
  const Status why(Code::kUnavailable, "no\x1b[2J room");
  EXPECT_EQ(ToHex(EncodeAbort(why)),
            "0a"
            "00"
            "2100"
            "0b00"
            "6e6f1b5b324a20726f6f6d");
  const Status shown = DecodeAbort(EncodeAbort(why));
  EXPECT_EQ(shown.code(), Code::kUnavailable);
  EXPECT_EQ(shown.message().find('\x1b'), std::string::npos) << shown.message();
  EXPECT_EQ(DecodeAbort({}).code(), Code::kProtocolError);
  EXPECT_EQ(DecodeAbort(EncodeAbort(Status())).code(), Code::kProtocolError) << "no success";
}

TEST(CopyWire, NoiseIsRefusedWithoutHarm) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    Bytes message(random() % 96);
    for (std::byte& byte : message) byte = static_cast<std::byte>(random());
    (void)TypeOf(message);
    (void)TaskReader().Take(message).ok();
    (void)BeginReader().Take(message).ok();
    (void)Welcome::Decode(message).ok();
    (void)DecodeBatch(message, 65536).ok();
    (void)DecodeCredit(message).ok();
    (void)DecodeTotals(message).ok();
    (void)Progress::Decode(message).ok();
    (void)Notice::Decode(message).ok();
    (void)Want::Decode(message).ok();
    (void)Tally::Decode(message).ok();
    EXPECT_FALSE(DecodeAbort(message).ok());
  }
}

}  // namespace
}  // namespace rdfs::copy
