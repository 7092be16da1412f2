// SessionTable: every mount that the server knows, and when each is over.
//
// Admits clients (a known client id resumes its session), counts their lanes and lets sessions
// whose lease has run out end. What ends with a session is the caller's to clear away, and until
// then its client gets no other: both go by the same id. Any thread; one mutex, never held over a
// system call.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "server/session/fs_session.h"
#include "server/session/session_state.h"

namespace rdfs::server {

class SessionTable {
 public:
  explicit SessionTable(std::chrono::nanoseconds lease) : lease_(lease) {}

  // The session of this client, when it is still there.
  SessionPtr Resume(const ClientId& client, TimePoint now);
  // A new session, or the one that the same client made meanwhile; null while one of its is cleared
  // away.
  SessionPtr Add(SessionPtr session, TimePoint now);

  // A client of ours has at most 32 lanes, and for a while those that it has lost.
  // False: the session is over, or has too many.
  bool LaneOpened(const FsSession& session, TimePoint now);
  void LaneClosed(const FsSession& session, TimePoint now);

  // Ends it now; false when it has ended already.
  bool Take(const FsSession& session);
  // We were away ourselves, suspended or stopped, and have not looked yet for what clients have
  // sent meanwhile: each of them has half a lease at least.
  void WasAway(TimePoint now);
  // Sessions whose lease has just run out.
  std::vector<SessionPtr> TakeExpired(TimePoint now);
  // What ended with a session that was taken has been cleared away: its client may have another.
  void Cleared(const FsSession& session);
  // Waits until nothing is left of an earlier session of this client; false: it takes longer.
  bool WaitUntilCleared(const ClientId& client, std::chrono::nanoseconds patience);
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
  std::condition_variable cleared_;
  std::map<ClientId, Entry> entries_;  // one that is over stays until it is cleared away
};

}  // namespace rdfs::server
