// Files that rdcp reads: lists of paths, patterns, and the journal of a copy that was cut short.
#include <fcntl.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/server/temp_dir.h"
#include "tools/copy/command/operand.h"
#include "tools/copy/destination/journal.h"
#include "tools/copy/file/pace.h"
#include "tools/copy/remote/ports.h"
#include "tools/copy/source/filter.h"
#include "tools/copy/source/list.h"
#include "transport/base/fd.h"

namespace rdfs::fuzz {
namespace {

using namespace copy;
using server::TempDir;

constexpr std::size_t kFileBytes = 8192;

void WriteFile(const std::string& path, ByteSpan bytes) {
  const Fd file(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  (void)!::write(file.get(), bytes.data(), bytes.size());
}

void CheckList(const TempDir& folder, ByteSpan input) {
  WriteFile(folder / "list", input);
  Listed listed(nullptr);
  if (!ReadList(folder / "list", false, listed).ok()) return;
  for (const std::string& path : listed.paths()) {
    Require(("/" + path + "/").find("/../") == std::string::npos, "no way up");
    Require(!path.starts_with('/'), "a listed path is relative");
    Require(listed.Takes(path, true), "what is listed takes part");
  }
}

void CheckRules(Pieces pieces) {
  Rules rules;
  for (int i = 0; i < 4; ++i) {
    const bool include = pieces.Byte() % 2 == 0;
    rules.Add(include, std::string(AsText(pieces.Next())));
  }
  (void)rules.Takes(AsText(pieces.Next()), false);
}

// What a damaged journal makes us believe is as it was noted: never bytes that are not there.
void CheckJournal(const TempDir& folder, Pieces pieces) {
  const FilePtr directory = Here()->Open(folder.path(), O_RDONLY | O_DIRECTORY);
  const FilePtr file = directory->Open("file", O_CREAT | O_RDWR, 0600);
  const Bytes content(kFileBytes, std::byte{'x'});
  (void)file->Write(content, 0);
  const SourceMark mark{kFileBytes, 7, {1, 2}, {3, 4}};
  {
    const auto journal = Journal::Open(*directory, "journal", true);
    Require(journal != nullptr && journal->Start(mark).ok(), "a journal can be begun");
    journal->Add(0, ByteSpan(content).first(4096));
    journal->Add(4096, ByteSpan(content).first(100));
  }
  const Fd raw(::open((folder / "journal").c_str(), O_WRONLY | O_CLOEXEC));
  for (int changes = 0; changes < 8 && !pieces.empty(); ++changes) {
    const off_t at = pieces.Byte();
    const ByteSpan bytes = pieces.Span(pieces.Byte() % 64U);
    (void)!::pwrite(raw.get(), bytes.data(), bytes.size(), at);
  }
  const auto journal = Journal::Open(*directory, "journal", true);
  const std::atomic<bool> stop{false};
  const auto trusted = journal->Trusted(mark, *file, stop);
  if (!trusted.ok()) return;
  std::uint64_t end = 0;
  for (const Range& range : *trusted) {
    Require(range.offset >= end && range.length > 0, "ranges are in order");
    Require(range.length <= kFileBytes && range.offset <= kFileBytes - range.length, "and there");
    end = range.offset + range.length;
  }
}

void CheckWords(ByteSpan input) {
  const std::string text(AsText(input));
  (void)ParseOperand(text);
  (void)PortRange::Parse(text);
  (void)Pace::Parse(text);
}

}  // namespace

void Run(ByteSpan input) {
  static const TempDir folder;
  if (input.empty()) return;
  const ByteSpan rest = input.subspan(1);
  switch (std::to_integer<int>(input[0]) % 4) {
    case 0:
      return CheckList(folder, rest);
    case 1:
      return CheckRules(Pieces(rest));
    case 2:
      return CheckJournal(folder, Pieces(rest));
    default:
      return CheckWords(rest);
  }
}

std::vector<Bytes> Seeds() {
  Bytes rules, journal{std::byte{80}, std::byte{8}};
  for (const std::string_view pattern : {"*.c", "build/", "/a/**/b", "[a-z]?\\*"}) {
    rules.push_back(std::byte{1});
    PutSized16(rules, AsBytes(pattern));
  }
  PutSized16(rules, AsBytes("a/x/b"));
  journal.resize(10);
  return {Of(0, AsBytes("a/b\n./c//d\ne/\n")),
          Of(1, rules),
          Of(2, journal),
          Of(3, AsBytes("me@node:/a b")),
          Of(3, AsBytes("rdfs://[::1]:7337/x/y")),
          Of(3, AsBytes("7000-7010")),
          Of(3, AsBytes("10M"))};
}

}  // namespace rdfs::fuzz
