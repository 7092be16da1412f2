// Files that rdfsd reads, and what its supervisor and worker say to each other: configuration,
// exports, key files, the record of requests that a crash has left.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/command/options.h"
#include "server/record/intent_ring.h"
#include "server/session/export.h"
#include "server/supervisor/supervisor_packet.h"
#include "tests/fuzz/fuzz.h"
#include "tests/server/temp_dir.h"
#include "transport/session/key.h"

namespace rdfs::fuzz {
namespace {

using namespace server;

void WriteFile(const std::string& path, ByteSpan bytes) {
  const Fd file(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  (void)!::write(file.get(), bytes.data(), bytes.size());
}

void CheckConfig(const std::string& path, ByteSpan input) {
  WriteFile(path, input);
  Options options;
  const Status status = ReadConfig(path, options);
  Require(status.ok() || !status.message().empty(), "what is wrong is said");
}

void CheckWords(ByteSpan input) {
  const auto spec = ExportSpec::Parse(AsText(input));
  if (spec.ok()) Require(!spec->name.empty() && !spec->directory.empty(), "an export has both");
  (void)ParseSize(AsText(input));
}

void CheckKey(const std::string& path, ByteSpan input) {
  WriteFile(path, input);
  const auto key = transport::Key::FromFile(path);
  if (!key.ok()) return;
  Require(!key->empty() && key->bytes().size() <= transport::Key::kMaxBytes, "a key is bounded");
  Require(key->text().find('\n') == std::string_view::npos, "a key is a line");
}

// A ring of four records, some of whose bytes have changed since it was written.
void CheckRing(const server::TempDir& folder, Pieces pieces) {
  const std::string path = folder / "ring";
  constexpr std::uint64_t kSession = 42;
  const auto ring = [&] { return IntentRing::Open(path, kSession, 4); };
  {
    auto written = ring();
    Require(written.ok(), "a ring can be made");
    (void)(*written)->Begin(1, fs::Opcode::kMkdir, 7, PriorState{});
    (*written)->Complete(1, fs::WireError::kOk, AsBytes("answer"));
    (void)(*written)->Begin(2, fs::Opcode::kUnlink, 8, PriorState{});
  }
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  for (int changes = 0; changes < 8 && !pieces.empty(); ++changes) {
    const off_t at = pieces.Read<Le16>() % (4096 + 4 * 1024);
    const ByteSpan bytes = pieces.Span(pieces.Byte() % 32U);
    (void)!::pwrite(file.get(), bytes.data(), bytes.size(), at);
  }
  (void)IntentRing::Leftovers(folder.path());
  const auto read = ring();
  Require(read.ok(), "a damaged ring is made anew");
  Require((*read)->records_in_use() <= 4, "as many records as there are");
  for (const std::uint64_t sequence : {1U, 2U, 3U}) {
    const auto found = (*read)->Lookup(sequence, 7);
    Require(found.reply.size() <= IntentRing::kMaxReplyBytes, "an answer is bounded");
  }
  (*read)->Remove();
}

void CheckPacket(ByteSpan input) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
  const Fd ours(ends[0]), theirs(ends[1]);
  (void)send(theirs.get(), input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const auto packet = ReceivePacket(ours.get());
  if (!packet.ok() || !*packet) return;
  Require((*packet)->key.size() <= kMaxKeptKeyBytes, "a key is bounded");
  Require((*packet)->state.size() <= kMaxKeptStateBytes, "a state is bounded");
}

}  // namespace

void Run(ByteSpan input) {
  static const server::TempDir folder;
  if (input.empty()) return;
  const ByteSpan rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 5) {
    case 0:
      return CheckConfig(folder / "config.toml", rest);
    case 1:
      return CheckWords(rest);
    case 2:
      return CheckKey(folder / "key", rest);
    case 3:
      return CheckRing(folder, Pieces(rest));
    default:
      return CheckPacket(rest);
  }
}

std::vector<Bytes> Seeds() {
  constexpr std::string_view kConfig =
      "listen = [\"10.0.0.1\", \"::1\"]\nport = 7337\nkey_file = \"/etc/rdfs/key\"\n"
      "pool = \"4G\"\n[[export]]\nname = \"home\"\ndir = \"/home\"\noptions = \"ro,root_squash\"\n";
  Bytes ring;
  Put(ring, Le16(4096));
  ring.push_back(std::byte{8});
  ring.resize(ring.size() + 8);
  std::array<int, 2> ends{};
  Bytes packet(400);
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0) {
    const Fd ours(ends[0]), theirs(ends[1]);
    (void)SendPacket(ours.get(), PacketType::kSetState, AsBytes("a key"), AsBytes("its state"), -1,
                     DeadlineAfter(std::chrono::seconds(1)));
    const ssize_t count = recv(theirs.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    packet.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  }
  return {Of(0, AsBytes(kConfig)),
          Of(1, AsBytes("home=/home,ro,anonuid=7")),
          Of(1, AsBytes("home=,ro")),
          Of(1, AsBytes("64M")),
          Of(2, AsBytes("sesame\n")),
          Of(3, ring),
          Of(4, packet)};
}

}  // namespace rdfs::fuzz
