#include "tools/copy/remote/errand.h"

#include <utility>

#include "transport/ssh/launch.h"

namespace rdfs::copy {

Result<FirstLine> FirstLine::Parse(std::string_view text) {
  RDFS_ASSIGN_OR_RETURN(const auto words, transport::ssh::SplitWords(text));
  if (words.size() != 1 && words.size() != 4) {
    return Status(Code::kInvalidArgument,
                  "the calling rdcp gave an errand that this one does not "
                  "know: install the same release at both ends");
  }
  FirstLine out;
  RDFS_ASSIGN_OR_RETURN(out.ports, PortRange::Parse(words[0]));
  if (words.size() == 1) return out;
  RDFS_ASSIGN_OR_RETURN(const PortRange port, PortRange::Parse(words[2]));
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
