#include "server/session/limits.h"

#include <string>

#include "transport/base/log.h"

namespace rdfs::server {
namespace {

struct Row {
  std::string_view name;
  std::string_view sentence;
};

constexpr std::array<Row, static_cast<std::size_t>(Refusals::What::kCount)> kRows = {{
    {"mounts", "has as many mounts as it may (limits.mounts): one more is refused"},
    {"lanes", "has as many lanes as it may (limits.lanes): one more is ended"},
    {"open_files", "has as many open files as it may (limits.open_files): an open answers EMFILE"},
    {"locks", "has as many locks as it may (limits.locks): one more answers ENOLCK"},
    {"pinned", "has as much memory for writes as it may (limits.pinned): a lane gets less"},
    {"requests",
     "has as many requests under way as it may (limits.requests): one more answers "
     "EAGAIN"},
    {"wrong_keys", ""},
    {"request_bytes", "has as many bytes of waiting requests as it may: one more answers EAGAIN"},
    {"users",
     "waits for the groups of as many users as it may: a request of one more answers EAGAIN"},
}};

}  // namespace

void Refusals::Note(What what, std::string_view client) {
  CountOnly(what);
  LogWarn("{} {}", client, kRows[static_cast<std::size_t>(what)].sentence);
}

void Refusals::AddTo(Snapshot& out) const {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    out.Count("refused", "Requests and clients refused for a limit or a wrong key.",
              counts_[i].load(std::memory_order_relaxed), std::string(kRows[i].name));
  }
}

}  // namespace rdfs::server
