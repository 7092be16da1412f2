#include "tools/copy/remote/errand.h"

#include <algorithm>
#include <utility>

#include "transport/ssh/launch.h"

namespace rdfs::copy {
namespace {

// What ToString can say again: nothing in it means anything to whoever splits a line into words.
bool IsPlainWord(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) {
    return c > ' ' && c < 0x7f && c != '\'' && c != '"' && c != '\\';
  });
}

Status Unknown() {
  return {Code::kInvalidArgument,
          "the calling rdcp gave an errand that this one does not know: install the same release "
          "at both ends"};
}

}  // namespace

Result<FirstLine> FirstLine::Parse(std::string_view text) {
  RDFS_ASSIGN_OR_RETURN(const auto words, transport::ssh::SplitWords(text));
  if (words.size() != 1 && words.size() != 4) {
    return Unknown();
  }
  FirstLine out;
  RDFS_ASSIGN_OR_RETURN(out.ports, PortRange::Parse(words[0]));
  if (words.size() == 1) return out;
  RDFS_ASSIGN_OR_RETURN(const PortRange port, PortRange::Parse(words[2]));
  if (port.first == 0 || port.first != port.last || !IsPlainWord(words[1]) ||
      !IsPlainWord(words[3])) {
    return Unknown();
  }
  out.meeting = Meeting{words[1], port.first, transport::Key(words[3])};
  return out;
}

std::string FirstLine::ToString() const {
  std::string out = ports.ToString();
  if (!meeting) return out;
  out.append(" ").append(meeting->host).append(" ").append(std::to_string(meeting->port));
  return out.append(" ").append(meeting->key.text());
}

}  // namespace rdfs::copy
