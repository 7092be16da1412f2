#include "tools/copy/command/roots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "tools/copy/file/names.h"
#include "tools/copy/source/pattern.h"

namespace rdfs::copy {

Result<Source> Roots::Find(const Operand& operand) {
  if (operand.where == Operand::Where::kHere) return Source{operand.path, operand.path, Here()};
  auto root = std::ranges::find(roots_, operand.base(),
                                [](const Root& each) { return each.operand.base(); });
  if (root == roots_.end()) {
    const auto number = static_cast<std::uint16_t>(roots_.size());
    RDFS_ASSIGN_OR_RETURN(auto session, ExportSession::Connect(operand, options_, number, stop_));
    root = roots_.insert(roots_.end(), Root{operand, std::move(session)});
  }
  return Source{operand.url, operand.path.empty() ? "." : operand.path, root->session->root()};
}

Result<std::vector<Source>> Roots::FindAll(const Operand& operand) {
  RDFS_ASSIGN_OR_RETURN(const Source named, Find(operand));
  std::vector<Source> out;
  if (operand.where == Operand::Where::kExport && HasPattern(operand.path)) {
    for (const std::string& path : Lead(*named.from, named.path)) {
      out.push_back(
          {path == named.path ? named.shown : Joined(operand.base(), path), path, named.from});
    }
  }
  if (out.empty()) out.push_back(named);
  return out;
}

Status Roots::Lost() const {
  for (const Root& each : roots_) {
    if (!each.session->lost()) continue;
    return {Code::kErrno, ETIMEDOUT,
            fmt::format("{}: the server did not answer for {} s: what was not finished may be left "
                        "under a name that begins with .rdcp-",
                        each.operand.base(), ExportSession::kPatience.count())};
  }
  return {};
}

std::string Roots::KeptOwner() const {
  for (const Root& each : roots_) {
    if (each.session->kept_owner()) return each.operand.base();
  }
  return {};
}

std::vector<std::string> Roots::Describe() const {
  std::vector<std::string> out;
  for (const Root& each : roots_) {
    out.push_back(each.operand.base() + ": over " + each.session->Describe());
  }
  return out;
}

}  // namespace rdfs::copy
