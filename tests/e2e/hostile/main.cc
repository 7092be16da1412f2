// hostile HOST PORT KEY_FILE shm|tcp|verbs FILE
//
// A client that holds the key, mounts, speaks the protocol properly, and then misuses what it was
// given, in one way after the other: memory, keys, grants, numbers. Each time the server must
// refuse it, at the price of that connection at most, and serve the next one properly. FILE and
// FILE2 are in the export's root, 1 MiB of kBytes each. Exit codes: 0, 1 for what the server did
// wrong, 2 for a wrong use.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "tests/fs/client/intruder.h"
#include "transport/base/random.h"
#include "transport/domain.h"

namespace rdfs::fs::client {
namespace {

using std::chrono::seconds;
using transport::Completion;
using transport::Connection;
using transport::Kind;
using transport::RemoteRegion;
using transport::RemoteSlice;

constexpr std::string_view kExport = "e2e";
constexpr std::uint32_t kPiece = 4096;
constexpr std::size_t kOwnBytes = 1 << 20;
// What FILE is made of.
constexpr char kBytes = 'p';

int failures = 0;  // of this program's only thread

void Fail(const std::string& what) {
  fmt::print("WRONG: {}\n", what);
  ++failures;
}

// A client with one lane, which has staging, an open file and a grant: all properly come by.
class Client {
 public:
  Client(const DialFunction& dial, std::string_view file) : intruder_(dial, kExport) {
    if (!intruder_.ok()) {
      Fail("the server admits nobody any more");
      return;
    }
    auto memory = SharedMemory::Create("hostile", kOwnBytes, SharedMemory::Peers::kMayWrite);
    own_ = *intruder_.domain()->Register(*memory, transport::Access::kLocal);
    Renew(file);
  }
  // Its session ends at once, and not with its lease.
  ~Client() {
    if (lane_ != nullptr) (void)Ask(Opcode::kEndSession, {});
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // A fresh lane of the same session, served properly: what came before has cost no more than the
  // old one.
  void Renew(std::string_view file) {
    auto fresh = intruder_.OpenLane();
    // Soft-iWARP loses the first frame of a connection now and then, and a leg that does not answer
    // is given up (ARCHITECTURE.md, "Known defects"); and after very many connections the port that
    // it draws for one more may be taken.
    for (int i = 0; i < 10 && fresh == nullptr; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      fresh = intruder_.OpenLane();
    }
    lane_ = std::move(fresh);
    if (lane_ == nullptr) {
      return Fail("no lane is to be had any more: " + intruder_.why().ToString());
    }
    AttachLaneRequest attach{};
    attach.staging_bytes = 4 << 20;
    Bytes body;
    Put(body, attach);
    staging_ = Read<AttachLaneReply>(Opcode::kAttachLane, body);
    const auto found = Ask(Opcode::kLookup, LookupBody(intruder_.root(), file));
    if (!found) return Fail("a lookup is not answered");
    ByteReader entry(*found);
    (void)entry.Read<ReplyHeader>();
    handle_ = ReadEntry(entry).handle;
    Bytes open;
    Put(open, OpenRequest{.flags = kOpenRead | kOpenWrite});
    PutSized16(open, handle_.bytes());
    open_ = Read<OpenReply>(Opcode::kOpen, open).open;
    TakeGrant();
    WriteProperly();
  }

  // Reads FILE through a grant, and compares.
  void TakeGrant() {
    Bytes body;
    Put(body,
        ReadRequest{.open = open_, .offset = 0, .length = 65536, .want_ahead = 0, .flags = 0});
    const auto answer = Ask(Opcode::kRead, body);
    if (!answer) return Fail("a read is not answered");
    ByteReader reader(*answer);
    (void)reader.Read<ReplyHeader>();
    const auto reply = reader.Read<ReadReply>();
    granted_ = reply.grants > 0;
    if (!granted_) return;
    grant_ = reader.Read<GrantWire>();
    if (!Move(true, kPiece, {arenas_[grant_.arena], grant_.arena_offset})) {
      Fail("a granted extent cannot be READ");
    }
    if (Count(kBytes) != kPiece) Fail("a grant brought other bytes");
  }
  void WriteProperly() {
    if (staging_.slots == 0) return Fail("no staging");
    std::ranges::fill(own_->bytes().first(kPiece), std::byte{kBytes});
    if (!Move(false, kPiece, {staging_.staging.ToRegion(), 0})) Fail("staging takes no bytes");
    if (Error(Opcode::kCommit, Commit(open_, 0, kPiece, 0)) != WireError::kOk) {
      Fail("a commit is refused");
    }
  }

  [[nodiscard]] static Bytes Commit(std::uint64_t open, std::uint64_t offset, std::uint32_t length,
                                    std::uint64_t staged) {
    Bytes body;
    Put(body, CommitRequest{.open = open,
                            .offset = offset,
                            .flags = 0,
                            .length = length,
                            .staging_offset = staged});
    return body;
  }
  // Nothing when the lane has ended.
  std::optional<Bytes> Ask(Opcode opcode, const Bytes& body) {
    return intruder_.Ask(*lane_, opcode, body, [this](ByteSpan message) {
      ByteReader reader(message);
      const auto header = reader.Read<ReplyHeader>();
      if (header.opcode != static_cast<std::uint16_t>(Opcode::kArena)) return;
      const auto arena = reader.Read<ArenaMessage>();
      arenas_[arena.arena] = arena.region.ToRegion();
    });
  }
  std::optional<WireError> Error(Opcode opcode, const Bytes& body) {
    const auto answer = Ask(opcode, body);
    if (!answer) return std::nullopt;
    return static_cast<WireError>(std::uint16_t{ByteReader(*answer).Read<ReplyHeader>().error});
  }
  // Whether `length` bytes were moved between our memory and there, and the lane has outlived it.
  bool Move(bool read, std::uint32_t length, const RemoteSlice& there) {
    const transport::LocalSlice here{own_.get(), 0, length};
    const auto ticket = read ? lane_->Read(here, there) : lane_->Write(here, there);
    if (!ticket.ok() || !lane_->Flush().ok()) return false;
    while (true) {
      std::array<Completion, 1> out;
      const auto count = lane_->Wait(out, DeadlineAfter(seconds(10)));
      if (!count.ok() || *count == 0) return false;
      if (out[0].kind == Completion::Kind::kMessage) continue;
      if (!out[0].status.ok()) return false;
      // On iWARP a WRITE completes before the peer has looked at it.
      return Error(Opcode::kRenew, {}) == WireError::kOk;
    }
  }
  [[nodiscard]] std::size_t Count(char byte) const {
    return static_cast<std::size_t>(
        std::ranges::count(own_->bytes().first(kPiece), std::byte(byte)));
  }
  // The generation word that was READ last.
  [[nodiscard]] std::uint64_t Word() const {
    return ByteReader(own_->bytes().first(8)).Read<Le64>();
  }
  // Begins something of each kind and waits for nothing; the `turn`-th stops at another place.
  void Begin(int turn) {
    const transport::LocalSlice here{own_.get(), 0, kPiece};
    for (int i = 0; i <= turn; ++i) {
      if (granted_) (void)lane_->Read(here, {arena(), grant_.arena_offset});
      (void)lane_->Write(here, {staging(), 0});
      (void)intruder_.Send(*lane_, Opcode::kCommit, Commit(open_, 0, kPiece, 0));
      if (i % 2 == 0) (void)lane_->Flush();
    }
  }
  void Blank() { std::ranges::fill(own_->bytes().first(kPiece), std::byte{0x33}); }

  Intruder& intruder() { return intruder_; }
  std::unique_ptr<Connection>& lane() { return lane_; }
  [[nodiscard]] RemoteRegion staging() const { return staging_.staging.ToRegion(); }
  [[nodiscard]] RemoteRegion arena() { return arenas_[grant_.arena]; }
  [[nodiscard]] const GrantWire& grant() const { return grant_; }
  [[nodiscard]] RemoteRegion generations() { return arenas_[grant_.generation_arena]; }
  // Over tcp nothing is: bytes come inside answers.
  [[nodiscard]] bool granted() const { return granted_; }
  [[nodiscard]] std::uint64_t open() const { return open_; }

 private:
  template <WireStruct T>
  T Read(Opcode opcode, const Bytes& body) {
    const auto answer = Ask(opcode, body);
    if (!answer) {
      Fail(fmt::format("{} is not answered", OpcodeName(opcode)));
      return {};
    }
    ByteReader reader(*answer);
    const auto header = reader.Read<ReplyHeader>();
    if (header.error != 0)
      Fail(fmt::format("{} answers error {}", OpcodeName(opcode), std::uint16_t{header.error}));
    return reader.Read<T>();
  }

  Intruder intruder_;
  std::unique_ptr<transport::MemoryRegion> own_;
  std::unique_ptr<Connection> lane_;
  std::map<std::uint32_t, RemoteRegion> arenas_;
  AttachLaneReply staging_{};
  Handle handle_;
  std::uint64_t open_ = 0;
  bool granted_ = false;
  GrantWire grant_{};
};

class Attack {
 public:
  Attack(DialFunction dial, Kind kind, std::string file)
      : dial_(std::move(dial)), kind_(kind), file_(std::move(file)), client_(dial_, file_) {}

  void All() {
    if (kind_ != Kind::kTcp && !client_.granted()) Fail("nothing was granted");
    Memory();
    StaleKeys();
    RevokedGrants();
    Requests();
    Floods();
    VanishingPeers();
  }

 private:
  // After each deed: the same session goes on with a lane, and so does somebody new.
  void After(const char* what) {
    const int before = failures;
    client_.Renew(file_);
    // Of another file: nobody waits for what the first one believes, and does not let go.
    Client other(dial_, file_ + "2");
    if (failures != before) fmt::print("... after {}\n", what);
    ++deeds_;
  }
  void Refused(const char* what, bool read, const RemoteRegion& region, std::uint64_t offset,
               std::uint32_t length = kPiece) {
    client_.Blank();
    const bool moved = client_.Move(read, length, {region, offset});
    if (moved) Fail(fmt::format("not refused: {}", what));
    if (read && client_.Count('\x33') != kPiece) Fail(fmt::format("it brought bytes: {}", what));
    After(what);
  }
  static RemoteRegion Lied(RemoteRegion region, std::uint64_t length) {
    region.length = length;
    return region;
  }

  void Memory() {
    constexpr std::uint64_t kMuch = std::uint64_t{1} << 40;
    const auto staging = [this] { return client_.staging(); };
    Refused("a WRITE behind its staging", false, Lied(staging(), kMuch), staging().length);
    Refused("a WRITE over the end of its staging", false, Lied(staging(), kMuch),
            staging().length - 8);
    Refused("a WRITE far outside its staging", false, Lied(staging(), kMuch), kMuch / 2);
    RemoteRegion before = Lied(staging(), kMuch);
    before.address -= 65536;
    // Over tcp and shm addresses mean nothing: the key and the offset count.
    if (kind_ == Kind::kVerbs) Refused("a WRITE before its staging", false, before, 0);
    RemoteRegion guessed = client_.staging();
    guessed.key ^= 0x5a5a00;
    Refused("a WRITE with a key that it has made up", false, guessed, 0);
    if (!client_.granted()) return;
    Refused("a WRITE to what it may only READ", false, client_.arena(),
            client_.grant().arena_offset);
    Refused("a READ behind an arena", true, Lied(client_.arena(), kMuch), client_.arena().length);
    guessed = client_.arena();
    guessed.key ^= 0x5a5a00;
    Refused("a READ with a key that it has made up", true, guessed, 0);
  }

  void StaleKeys() {
    const RemoteRegion staging = client_.staging();
    client_.Renew(file_);
    // The lane of that staging has gone; the server hears of it when it polls, and the key is dead
    // when the memory is given back.
    const auto dead = [&] {
      client_.Blank();
      return !client_.Move(false, kPiece, {staging, 0});
    };
    bool refused = false;
    for (int i = 0; i < 50 && !refused; ++i) {
      refused = dead();
      if (!refused) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (!refused) Fail("not refused: a WRITE with the key of a lane that is gone");
    After("a stale key");
  }

  // Holds on to a grant that somebody's change has ended. What it READs then counts only while the
  // generation stands; and then it is what was granted.
  void RevokedGrants() {
    if (!client_.granted()) return;
    Client other(dial_, file_);
    const GrantWire grant = client_.grant();
    const RemoteRegion arena = client_.arena(), generations = client_.generations();
    other.WriteProperly();
    for (int i = 0; i < 20; ++i) {
      if (!client_.Move(true, kPiece, {arena, grant.arena_offset})) break;
      const std::size_t same = client_.Count(kBytes);
      if (!client_.Move(true, 8, {generations, grant.generation_offset})) break;
      const std::uint64_t word = client_.Word();
      if (word == grant.generation && same != kPiece) {
        Fail("a revoked grant brought other bytes under its own generation");
      }
      other.WriteProperly();
    }
    After("READs of what was revoked");
  }

  // Requests that no client of ours sends: an error or the lane's end, and no more.
  void Request(const char* what, Opcode opcode, const Bytes& body) {
    const auto error = client_.Error(opcode, body);
    if (error == WireError::kOk) Fail(fmt::format("carried out: {}", what));
    After(what);
  }
  void Requests() {
    const std::uint64_t open = client_.open();
    const auto length = client_.staging().length;
    Request("a commit from behind its staging", Opcode::kCommit,
            Client::Commit(client_.open(), 0, kPiece, length));
    Request("a commit of more than there is", Opcode::kCommit,
            Client::Commit(client_.open(), 0, ~0U, 0));
    Request("a commit whose place wraps", Opcode::kCommit,
            Client::Commit(client_.open(), 0, kPiece, ~0ULL - 100));
    Request("a commit behind the end of all files", Opcode::kCommit,
            Client::Commit(client_.open(), ~0ULL - 10, kPiece, 0));
    Request("a commit to somebody's file", Opcode::kCommit,
            Client::Commit(open + 1000, 0, kPiece, 0));
    Bytes attach;
    Put(attach, AttachLaneRequest{.lane = 0, .staging_bytes = ~0U});
    (void)client_.Ask(Opcode::kAttachLane, attach);
    After("a lane that is attached twice, with all memory there is");
    Bytes recall;
    Put(recall, RecallAckRequest{.number = 77});
    (void)client_.Ask(Opcode::kRecallAck, recall);
    After("an acknowledgement of what nobody recalled");
    Headers();
    for (int i = 0; i < 12; ++i) {
      Bytes noise(1 + static_cast<std::size_t>(i) * 23);
      FillRandom(noise);
      (void)client_.lane()->Send(noise);
      if (client_.Error(Opcode::kRenew, {})) continue;  // a header by chance
      client_.Renew(file_);
    }
    After("noise");
  }
  // What is a request but for one thing in its header.
  void Headers() {
    using Spoil = void (*)(RequestHeader&);
    constexpr std::array<Spoil, 5> kSpoilt = {
        [](RequestHeader& header) { header.session = header.session + 1; },
        [](RequestHeader& header) { header.body_bytes = ~0U; },
        [](RequestHeader& header) { header.opcode = 0xfff0; },
        [](RequestHeader& header) { header.acknowledged = ~0ULL; },
        [](RequestHeader& header) { header.sequence = 0; }};
    for (const Spoil spoil : kSpoilt) {
      // What it says of its own session may spoil that as well.
      Client spoilt(dial_, file_ + "2");
      if (spoilt.lane() == nullptr) return;
      const Bytes body = Client::Commit(spoilt.open(), 0, kPiece, 0);
      RequestHeader header = spoilt.intruder().Header(Opcode::kCommit, body.size());
      spoil(header);
      (void)Intruder::Send(*spoilt.lane(), header, body);
      (void)spoilt.Error(Opcode::kRenew, {});
      After("a spoilt header");
    }
  }
  // More than a lane may have under way, and answers that nobody takes.
  void Floods() {
    const Bytes body = Client::Commit(client_.open(), 0, kPiece, 0);
    for (int i = 0; i < 2000; ++i) {
      if (!client_.intruder().Send(*client_.lane(), Opcode::kCommit, body).ok()) break;
      (void)client_.lane()->Flush();
    }
    After("2,000 commits at once");
  }
  // Gone in the middle of READs, WRITEs and commits.
  void VanishingPeers() {
    for (int i = 0; i < 10; ++i) {
      Client gone(dial_, file_ + "2");
      if (gone.lane() == nullptr) return;
      gone.Begin(i);
      gone.lane().reset();
    }
    After("peers that vanish");
  }

 public:
  [[nodiscard]] int deeds() const { return deeds_; }

 private:
  const DialFunction dial_;
  const Kind kind_;
  const std::string file_;
  Client client_;
  int deeds_ = 0;
};

}  // namespace

int Main(const std::vector<std::string>& words) {
  const std::map<std::string, Kind> kinds = {
      {"shm", Kind::kShm}, {"tcp", Kind::kTcp}, {"verbs", Kind::kVerbs}};
  if (words.size() != 5 || !kinds.contains(words[3])) {
    fmt::print(stderr, "hostile: wrong use; see the head of its main.cc\n");
    return 2;
  }
  const Kind kind = kinds.at(words[3]);
  const auto key = transport::Key::FromFile(words[2]);
  if (!key.ok()) {
    fmt::print(stderr, "hostile: {}\n", key.status().ToString());
    return 2;
  }
  Attack attack(
      [&](std::vector<std::byte> request, std::shared_ptr<transport::Domain> domain,
          Deadline deadline) {
        transport::DialOptions options;
        options.host = words[0];
        options.port = static_cast<std::uint16_t>(std::stoi(words[1]));
        options.key = *key;
        options.require = kind;
        options.service = kServiceName;
        options.request = std::move(request);
        options.deadline = deadline;
        return transport::Session::Dial(std::move(options), std::move(domain));
      },
      kind, words[4]);
  attack.All();
  fmt::print("{} deeds over {}, {} of them wrongly answered\n", attack.deeds(), words[3], failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace rdfs::fs::client

int main(int argc, char** argv) {
  return rdfs::fs::client::Main(std::vector<std::string>(argv + 1, argv + argc));
}
