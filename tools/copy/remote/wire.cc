#include "tools/copy/remote/wire.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tools/copy/file/names.h"
#include "tools/pipe/wire/protocol.h"
#include "transport/session/messages.h"

namespace rdfs::copy {

using pipe::ReadWhole;
using pipe::ToBytes;

namespace {

constexpr std::array<char, 4> kMagic = {'R', 'D', 'C', 'P'};

Status Malformed(const char* what) {
  return {Code::kProtocolError, std::string("the other rdcp sent a malformed ") + what};
}

Le8 TypeByte(MessageType type) { return static_cast<std::uint8_t>(type); }

std::string VersionText(unsigned major, unsigned minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

// The bits of a set of switches, in the order of their numbers on the wire. Never reordered.
template <typename T, std::size_t kCount>
using Switches = std::array<bool T::*, kCount>;
constexpr Switches<Task, 17> kOptions = {
    &Task::recurse,  &Task::follow,           &Task::follow_source, &Task::one_file_system,
    &Task::in_place, &Task::directory_wanted, &Task::update,        &Task::sync,
    &Task::remove,   &Task::checksum,         &Task::verify,        &Task::dry_run,
    &Task::has_list, &Task::resume,           &Task::moves,         &Task::counts,
    &Task::asks};
constexpr Switches<Keep, 7> kKeeps = {&Keep::mode,   &Keep::owner, &Keep::times,   &Keep::acls,
                                      &Keep::xattrs, &Keep::links, &Keep::specials};

template <typename T, std::size_t kCount>
std::uint32_t Pack(const T& value, const Switches<T, kCount>& switches) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (value.*switches[i]) bits |= 1U << i;
  }
  return bits;
}

template <typename T, std::size_t kCount>
bool Unpack(std::uint32_t bits, const Switches<T, kCount>& switches, T& value) {
  if ((bits >> kCount) != 0) return false;
  for (std::size_t i = 0; i < kCount; ++i) value.*switches[i] = (bits >> i & 1U) != 0;
  return true;
}

std::string TextOf(ByteSpan bytes) { return std::string(AsText(bytes)); }

// The names of one message: as many of `names` from `at` on as fit.
Bytes EncodeNames(const std::vector<std::string>& names, std::size_t& at) {
  Bytes out(transport::kMaxMessageBytes);
  ByteWriter writer(out);
  writer.Write(TypeByte(MessageType::kNames));
  writer.Write(Le8(0));
  std::uint16_t count = 0;
  const MutableByteSpan count_field = writer.Reserve(sizeof(Le16));
  for (; at < names.size() && count < 0xffff; ++at, ++count) {
    if (writer.room() < names[at].size() + sizeof(Le16)) break;
    writer.WriteSized16(AsBytes(names[at]));
  }
  ByteWriter(count_field).Write(Le16(count));
  out.resize(writer.size());
  return out;
}

}  // namespace

std::optional<MessageType> TypeOf(ByteSpan message) {
  if (message.empty()) return std::nullopt;
  const auto type = std::to_integer<std::uint8_t>(message.front());
  if (type < 1 || type > static_cast<std::uint8_t>(MessageType::kProgress)) return std::nullopt;
  return static_cast<MessageType>(type);
}

Bytes EncodeHello() { return ToBytes(HelloWire{kMagic, kMajor, kMinor, 0, 0}); }

Status CheckHello(ByteSpan bytes) {
  ByteReader reader(bytes);
  const auto wire = reader.Read<HelloWire>();
  if (!reader.ok() || wire.magic != kMagic) return Malformed("hello: it is no rdcp");
  if (wire.major != kMajor) {
    return {Code::kVersionMismatch, "the calling rdcp speaks copy protocol " +
                                        VersionText(wire.major, wire.minor) + ", this one " +
                                        VersionText(kMajor, kMinor) +
                                        ": install the same release at both ends"};
  }
  if (wire.flags != 0) {
    return {Code::kUnsupported,
            "the calling rdcp uses a feature that this one does not have: install the same release "
            "at both ends"};
  }
  return {};
}

Bytes EncodePort(std::uint16_t port) { return ToBytes(Le16(port)); }

Result<std::uint16_t> DecodePort(ByteSpan grant) {
  Le16 wire{};
  if (!ReadWhole(grant, wire)) return Malformed("port");
  return std::uint16_t{wire};
}

Result<std::vector<Bytes>> EncodeTask(const Task& task) {
  std::size_t bytes = 0;
  std::vector<std::string> names = task.names;
  names.insert(names.end(), task.rules.begin(), task.rules.end());
  names.insert(names.end(), task.listed.begin(), task.listed.end());
  for (const std::string& name : names) {
    if (name.size() > kMaxPathInMessage || name.find('\0') != std::string::npos) {
      return Status(
          Code::kInvalidArgument,
          "a path or pattern for another machine has at most 4096 bytes, and no NUL in it");
    }
    bytes += name.size() + sizeof(Le16);
  }
  if (bytes > kMaxTaskBytes || names.size() > kMaxTaskNames) {
    return Status(Code::kInvalidArgument,
                  "too many paths for one copy from another machine: name their directory with -r, "
                  "or copy in parts");
  }
  std::vector<Bytes> out;
  out.push_back(
      ToBytes(TaskWire{TypeByte(MessageType::kTask), static_cast<std::uint8_t>(task.role),
                       static_cast<std::uint8_t>(task.further_lanes), 0, Pack(task, kOptions),
                       Pack(task.keep, kKeeps), static_cast<std::uint32_t>(task.names.size()),
                       static_cast<std::uint32_t>(task.rules.size()),
                       static_cast<std::uint32_t>(task.listed.size()), task.limit}));
  for (std::size_t at = 0; at < names.size();) out.push_back(EncodeNames(names, at));
  return out;
}

Result<TaskDigest> DigestOf(const Task& task) {
  RDFS_ASSIGN_OR_RETURN(const std::vector<Bytes> messages, EncodeTask(task));
  TaskDigest digest{};
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, digest.size());
  for (const Bytes& message : messages) {
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(message.data()),
                              message.size());
  }
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(digest.data()), digest.size());
  return digest;
}

Task TaskOfOther(const Task& task) {
  Task other = task;
  const bool receives = task.role == Task::Role::kForwards;
  other.role = receives ? Task::Role::kReceives : Task::Role::kSends;
  other.asks = false;
  other.counts = task.counts && !receives;
  if (!receives) other.names.erase(other.names.begin());
  return other;
}

Bytes EncodeMeet(const TaskDigest& only) {
  Bytes out = EncodeHello();
  out.insert(out.end(), only.begin(), only.end());
  return out;
}

Result<TaskDigest> DecodeMeet(ByteSpan request) {
  RDFS_RETURN_IF_ERROR(CheckHello(request));
  TaskDigest only{};
  if (!ReadWhole(request.subspan(sizeof(HelloWire)), only)) return Malformed("request to wait");
  return only;
}

Result<bool> TaskReader::Take(ByteSpan message) {
  RDFS_RETURN_IF_ERROR(begun_ ? TakeNames(message) : TakeHead(message));
  return task_.names.size() == names_ && task_.rules.size() == rules_ &&
         task_.listed.size() == listed_;
}

Status TaskReader::TakeHead(ByteSpan message) {
  TaskWire wire{};
  if (TypeOf(message) != MessageType::kTask || !ReadWhole(message, wire)) return Malformed("task");
  const std::uint32_t names = wire.names;
  const std::uint32_t rules = wire.rules;
  const std::uint32_t listed = wire.listed;
  if (names > kMaxTaskNames || names == 0 || rules > kMaxTaskNames - names ||
      listed > kMaxTaskNames - names - rules) {
    return Malformed("task: its number of names");
  }
  const std::uint8_t role = wire.role;
  const bool known = role >= 1 && role <= 4 && Unpack(wire.options, kOptions, task_) &&
                     Unpack(wire.keep, kKeeps, task_.keep) && wire.zero == 0 &&
                     wire.further_lanes <= kMostFurtherLanes;
  if (!known) {
    return {Code::kUnsupported,
            "the calling rdcp asks for something that this one does not know: install the same "
            "release at both ends"};
  }
  task_.role = static_cast<Task::Role>(role);
  task_.limit = wire.limit;
  task_.further_lanes = wire.further_lanes;
  const bool across = task_.role == Task::Role::kForwards || task_.role == Task::Role::kFetches;
  if (across && names < 2) return Malformed("task: no sources");
  names_ = names;
  rules_ = rules;
  listed_ = listed;
  begun_ = true;
  return {};
}

Status TaskReader::TakeNames(ByteSpan message) {
  ByteReader reader(message);
  (void)reader.Read<Le16>();
  const std::uint16_t count = reader.Read<Le16>();
  if (TypeOf(message) != MessageType::kNames || count == 0 || bytes_ > kMaxTaskBytes ||
      count > names_ + rules_ + listed_ - task_.names.size() - task_.rules.size() -
                  task_.listed.size()) {
    return Malformed("list of names");
  }
  for (std::uint16_t i = 0; i < count; ++i) {
    std::string name = TextOf(reader.ReadSized16(kMaxPathInMessage));
    if (!reader.ok() || name.find('\0') != std::string::npos) return Malformed("name");
    bytes_ += name.size() + sizeof(Le16);
    if (task_.names.size() < names_) {
      task_.names.push_back(std::move(name));
    } else if (task_.rules.size() < rules_) {
      if (!name.starts_with('+') && !name.starts_with('-')) return Malformed("pattern");
      task_.rules.push_back(std::move(name));
    } else {
      task_.listed.push_back(std::move(name));
    }
  }
  return reader.remaining() == 0 ? Status() : Malformed("list of names");
}

Result<std::vector<Bytes>> Begin::Encode() const {
  const BeginWire head{TypeByte(MessageType::kBegin),
                       {},
                       static_cast<std::uint32_t>(sources.size()),
                       problems,
                       boot};
  std::vector<Bytes> out;
  std::size_t bytes = 0;
  auto source = sources.begin();
  do {
    Bytes message(transport::kMaxMessageBytes);
    ByteWriter writer(message);
    writer.Write(head);
    for (; source != sources.end(); ++source) {
      const std::size_t size = sizeof(Le32) + sizeof(Le8) + sizeof(Le16) + source->name.size();
      if (source->name.size() > kMaxNameBytes || writer.room() < size) break;
      writer.Write(Le32(source->asked));
      writer.Write(Le8(source->is_directory ? 1 : 0));
      writer.WriteSized16(AsBytes(source->name));
      bytes += size;
    }
    message.resize(writer.size());
    const bool stuck = source != sources.end() && message.size() == sizeof(head);
    if (bytes > kMaxTaskBytes || sources.size() > kMaxTaskNames || stuck) {
      return Status(Code::kInvalidArgument,
                    "too many sources for one copy to or from another machine: name their "
                    "directory with -r, or copy in parts");
    }
    out.push_back(std::move(message));
  } while (source != sources.end());
  return out;
}

Status BeginReader::TakeSource(ByteReader& reader) {
  Begin::Source source;
  source.asked = reader.Read<Le32>();
  const std::uint8_t directory = reader.Read<Le8>();
  source.is_directory = directory == 1;
  source.name = TextOf(reader.ReadSized16(kMaxNameBytes));
  if (!reader.ok() || directory > 1) return Malformed("source");
  if (!source.name.empty() && !CheckName(source.name).ok()) return Malformed("source's name");
  begin_.sources.push_back(std::move(source));
  return {};
}

Result<bool> BeginReader::Take(ByteSpan message) {
  ByteReader reader(message);
  const auto head = reader.Read<BeginWire>();
  const bool first = !head_;
  const bool same = first || std::memcmp(&*head_, &head, sizeof(head)) == 0;
  bytes_ += reader.remaining();
  if (!reader.ok() || TypeOf(message) != MessageType::kBegin || !same ||
      head.count > kMaxTaskNames || bytes_ > kMaxTaskBytes ||
      (begin_.sources.size() == head.count && !first)) {
    return Malformed("beginning");
  }
  head_ = head;
  begin_.problems = head.problems;
  begin_.boot = head.boot;
  if (reader.remaining() == 0 && head.count > 0) return Malformed("beginning");
  while (reader.remaining() > 0) {
    if (begin_.sources.size() == head.count) return Malformed("beginning");
    RDFS_RETURN_IF_ERROR(TakeSource(reader));
  }
  return begin_.sources.size() == head.count;
}

Bytes Welcome::Encode() const {
  return ToBytes(WelcomeWire{TypeByte(MessageType::kWelcome),
                             {},
                             slot_bytes,
                             slots,
                             0,
                             transport::RemoteRegionWire::From(ring)});
}

Result<Welcome> Welcome::Decode(ByteSpan message) {
  WelcomeWire wire{};
  if (!ReadWhole(message, wire)) return Malformed("welcome");
  const Welcome out{wire.ring.ToRegion(), wire.slot_bytes, wire.slots};
  const bool fits = out.slot_bytes >= kMinSlotBytes && out.slot_bytes <= kMaxSlotBytes &&
                    out.slots >= 1 && out.slots <= kMaxSlots &&
                    out.ring.length / out.slot_bytes >= out.slots;
  if (!fits) return Malformed("welcome");
  return out;
}

Bytes EncodeBatch(std::uint64_t number, std::uint32_t length, const Digest& digest) {
  return ToBytes(BatchWire{TypeByte(MessageType::kBatch), {}, length, number, digest});
}

Result<BatchWire> DecodeBatch(ByteSpan message, std::uint32_t slot_bytes) {
  BatchWire wire{};
  if (!ReadWhole(message, wire) || wire.length > slot_bytes) {
    return Malformed("batch");
  }
  return wire;
}

Bytes EncodeCredit(std::uint64_t done) {
  return ToBytes(CreditWire{TypeByte(MessageType::kCredit), {}, done});
}

Result<std::uint64_t> DecodeCredit(ByteSpan message) {
  CreditWire wire{};
  if (!ReadWhole(message, wire)) return Malformed("credit");
  return std::uint64_t{wire.done};
}

Bytes EncodeTotals(const Totals& totals) {
  return ToBytes(TotalsWire{TypeByte(MessageType::kTotals), {}, totals.files, totals.bytes});
}

Result<Totals> DecodeTotals(ByteSpan message) {
  TotalsWire wire{};
  if (!ReadWhole(message, wire)) return Malformed("count");
  return Totals{wire.files, wire.bytes};
}

Bytes Progress::Encode() const {
  return ToBytes(ProgressWire{TypeByte(MessageType::kProgress),
                              {},
                              copied.files,
                              copied.bytes,
                              passed.files,
                              passed.bytes});
}

Result<Progress> Progress::Decode(ByteSpan message) {
  ProgressWire wire{};
  if (!ReadWhole(message, wire)) return Malformed("progress");
  return Progress{{wire.files, wire.bytes}, {wire.passed_files, wire.passed_bytes}};
}

Bytes Want::Encode() const {
  Bytes out(12 + numbers.size() * sizeof(Le64));
  ByteWriter writer(out);
  writer.Write(TypeByte(MessageType::kWant));
  writer.Write(Le8(0));
  writer.Write(Le16(static_cast<std::uint16_t>(numbers.size())));
  writer.Write(Le64(up_to));
  for (const std::uint64_t number : numbers) writer.Write(Le64(number));
  return out;
}

Result<Want> Want::Decode(ByteSpan message) {
  ByteReader reader(message);
  (void)reader.Read<Le16>();
  const std::uint16_t count = reader.Read<Le16>();
  Want out;
  out.up_to = reader.Read<Le64>();
  if (!reader.ok() || reader.remaining() != count * sizeof(Le64)) return Malformed("want");
  for (std::uint16_t i = 0; i < count; ++i) out.numbers.push_back(reader.Read<Le64>());
  return out;
}

Bytes Have::Encode() const {
  Bytes out(12 + ranges.size() * 2 * sizeof(Le64));
  ByteWriter writer(out);
  writer.Write(TypeByte(MessageType::kHave));
  writer.Write(Le8(0));
  writer.Write(Le16(static_cast<std::uint16_t>(ranges.size())));
  writer.Write(Le64(number));
  for (const Range& each : ranges) {
    writer.Write(Le64(each.offset));
    writer.Write(Le64(each.length));
  }
  return out;
}

Result<Have> Have::Decode(ByteSpan message) {
  ByteReader reader(message);
  (void)reader.Read<Le16>();
  const std::uint16_t count = reader.Read<Le16>();
  Have out;
  out.number = reader.Read<Le64>();
  if (!reader.ok() || count == 0 || count > kMostRanges ||
      reader.remaining() != count * 2 * sizeof(Le64)) {
    return Malformed("list of what is there");
  }
  std::uint64_t end = 0;
  for (std::uint16_t i = 0; i < count; ++i) {
    const Range each{reader.Read<Le64>(), reader.Read<Le64>()};
    if (each.offset < end || each.length == 0 || each.length > ~each.offset) {
      return Malformed("list of what is there");
    }
    end = each.offset + each.length;
    out.ranges.push_back(each);
  }
  return out;
}

Bytes Notice::Encode() const {
  Bytes out(8 + kMaxPathInMessage + kMaxSentence);
  ByteWriter writer(out);
  writer.Write(TypeByte(MessageType::kNotice));
  writer.Write(Le8(static_cast<std::uint8_t>(what)));
  writer.Write(Le16(0));
  writer.WriteSized16(AsBytes(std::string_view(path).substr(0, kMaxPathInMessage)));
  writer.WriteSized16(AsBytes(std::string_view(sentence).substr(0, kMaxSentence)));
  out.resize(writer.size());
  return out;
}

Result<Notice> Notice::Decode(ByteSpan message) {
  ByteReader reader(message);
  (void)reader.Read<Le8>();
  const std::uint8_t what = reader.Read<Le8>();
  (void)reader.Read<Le16>();
  Notice out;
  out.path = TextOf(reader.ReadSized16(kMaxPathInMessage));
  out.sentence = TextOf(reader.ReadSized16(kMaxSentence));
  const bool known = what >= 1 && what <= static_cast<std::uint8_t>(What::kGone);
  if (!reader.ok() || reader.remaining() != 0 || !known) return Malformed("notice");
  out.what = static_cast<What>(what);
  return out;
}

Bytes Tally::Encode(MessageType type) const {
  return ToBytes(TallyWire{TypeByte(type), {}, batches, entries, bytes, failed, digest});
}

Result<Tally> Tally::Decode(ByteSpan message) {
  TallyWire wire{};
  if (!ReadWhole(message, wire)) return Malformed("end");
  return Tally{wire.batches, wire.entries, wire.bytes, wire.failed, wire.digest};
}

Bytes EncodeMet(std::string_view how) {
  Bytes out(4 + kMaxSentence);
  ByteWriter writer(out);
  writer.Write(TypeByte(MessageType::kMet));
  writer.Write(Le8(0));
  writer.WriteSized16(AsBytes(how.substr(0, kMaxSentence)));
  out.resize(writer.size());
  return out;
}

Result<std::string> DecodeMet(ByteSpan message) {
  ByteReader reader(message);
  (void)reader.Read<Le16>();
  const ByteSpan how = reader.ReadSized16(kMaxSentence);
  if (!reader.ok() || reader.remaining() != 0) return Malformed("meeting");
  return Shown(AsText(how));
}

Status OutOfTurn() { return {Code::kProtocolError, "the other rdcp sent a message out of turn"}; }

Bytes EncodeAbort(const Status& why) {
  Bytes out(6 + kMaxSentence);
  ByteWriter writer(out);
  writer.Write(TypeByte(MessageType::kAbort));
  writer.Write(Le8(0));
  writer.Write(Le16(static_cast<std::uint16_t>(why.code())));
  writer.WriteSized16(AsBytes(std::string_view(why.message()).substr(0, kMaxSentence)));
  out.resize(writer.size());
  return out;
}

Status DecodeAbort(ByteSpan message) {
  ByteReader reader(message);
  (void)reader.Read<Le16>();
  const std::uint16_t code = reader.Read<Le16>();
  const ByteSpan sentence = reader.ReadSized16(kMaxSentence);
  if (!reader.ok() || reader.remaining() != 0) return Malformed("abort");
  return {transport::session::CodeOfPeer(code), Shown(AsText(sentence))};
}

Bytes EncodeBare(MessageType type) { return Bytes{static_cast<std::byte>(type)}; }

}  // namespace rdfs::copy
