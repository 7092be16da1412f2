// Becoming a daemon, and telling who started us that we are ready.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

// What a starter waits for.
class Readiness {
 public:
  // Stays in the foreground.
  Readiness() = default;
  // Forks: the parent waits until Ready is called in the child or a process of its, then ends with
  // 0, or with 1 when they all end before. Returns in the child, which has a session of its own and
  // no standard input. Before any thread.
  static Result<Readiness> Daemonise();

  // Writes `text` (lines, without the last newline) to standard output, tells the parent and
  // systemd (NOTIFY_SOCKET, sd_notify(3)).
  void Ready(std::string_view text);

  // Lets go of what whoever started us may wait for: standard output and error are closed, and the
  // log goes to syslog. Ready does it; so does the supervisor, once it has a worker to be ready.
  // Nothing in the foreground.
  void Detach();

 private:
  Fd pipe_;
};

}  // namespace rdfs::server
