// SessionTable: every mount that the server knows, and when each is over.
//
// Admits clients (a known client id resumes its session), counts their lanes and lets sessions whose
// lease has run out end. What ends with a session is the caller's to clear away. Any thread; one
// mutex, never held over a system call.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "server/fs_session.h"
#include "server/session_state.h"

namespace rdfs::server {

class SessionTable {
 public:
  explicit SessionTable(std::chrono::nanoseconds lease) : lease_(lease) {}

  // The session of this client, when it is still there.
  SessionPtr Resume(const ClientId& client, TimePoint now);
  // A new session, or the one that the same client made meanwhile.
  SessionPtr Add(SessionPtr session, TimePoint now);

  // A client of ours has at most 32 lanes, and for a while those that it has lost.
  // False: the session is over, or has too many.
  bool LaneOpened(const FsSession& session, TimePoint now);
  void LaneClosed(const FsSession& session, TimePoint now);

  // Ends it now; false when it is not in the table any more.
  bool Take(const FsSession& session);
  // Sessions whose lease has run out, which are in the table no more.
  std::vector<SessionPtr> TakeExpired(TimePoint now);
  // When TakeExpired may have something next.
  [[nodiscard]] std::optional<TimePoint> NextDeadline() const;
  std::vector<SessionPtr> TakeAll();
  [[nodiscard]] std::vector<SessionPtr> All() const;
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t CountFrom(std::string_view origin) const;

 private:
  struct Entry {
    SessionPtr session;
    SessionState state;
  };
  Entry* FindLocked(const FsSession& session);

  const std::chrono::nanoseconds lease_;
  mutable std::mutex mutex_;
  std::map<ClientId, Entry> entries_;
};

}  // namespace rdfs::server
