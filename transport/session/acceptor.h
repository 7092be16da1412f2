// Acceptor: the server's end of sessions. One TCP port (hello, authentication, tcp lanes), a verbs
// port, an abstract UNIX socket for shm; it authenticates, asks the upper layer, hands lanes over.
//
// One thread: the one that calls Run. Nothing a peer does before it is authenticated costs more
// than one bounded record, and a slow or silent peer delays nobody (5 s, then dropped). Wrong keys
// are rate-limited by address and never delay a right one. What happens on the wire: PROTOCOL.md.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/session/key.h"
#include "transport/session/session.h"
#include "transport/tcp/stream.h"
#include "transport/transport.h"

namespace rdfs::transport {

// Who is asking, after authentication.
struct SessionRequest {
  std::uint64_t session_id = 0;
  std::string service;
  ByteSpan request;          // the upper layer's opening words; hostile
  std::string peer;          // address, for logs
  std::string origin;        // equal for all that one host, or one user of this host, opens
  std::string key_name;      // which of the server's keys was proved; empty without one
  std::optional<uid_t> uid;  // of a peer on this host, as the kernel reports it
  bool same_host = false;
  session::Secret32 exporter;  // as Session::exporter at the client
};

// What the upper layer grants.
struct Admission {
  std::shared_ptr<Domain> domain;  // of every lane of this session
  std::vector<std::byte> grant;    // Session::grant() at the client; at most 4 KiB
  std::shared_ptr<void> context;   // handed back with each lane; of one, eight sessions may stand
};

class SessionHost {
 public:
  virtual ~SessionHost() = default;
  // Called on the acceptor's thread; must not block. A Status refuses, and its code and message
  // reach the client's user.
  virtual Result<Admission> Admit(const SessionRequest& request) = 0;
  // A lane of an admitted session that has not ended. The host owns it from here, on whatever
  // thread it likes.
  virtual void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
                      std::unique_ptr<Connection> lane) = 0;
  // The session's vestibule has ended: no more lanes will come. Lanes that are open go on.
  virtual void OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) = 0;
  // No session stands on a stream that was given to Serve, nor will: it has ended, maybe before it
  // had one. Behind OnSessionEnd of the one that it had.
  virtual void OnStreamEnd() {}
  // Somebody has tried a key that was not the right one.
  virtual void OnWrongKey() {}
};

struct NamedKey {
  std::string name;
  Key key;
};

struct AcceptorOptions {
  std::vector<std::string> addresses;  // empty: every address
  std::uint16_t port = kDefaultPort;   // 0: a free one
  std::uint16_t verbs_port = 0;        // 0: port + 1
  bool listen_tcp = true;              // false: only streams given to Serve, with shm and verbs
  // Empty with no_auth only. A client names the key that it has, and the first is meant where it
  // names none: so a connection tries one key, whoever the other end is.
  std::vector<NamedKey> keys;
  bool no_auth = false;
  // What who has a wrong key is told to do about it.
  std::string key_advice =
      "copy its key file here, mode 0600, and give it with -o key_file=FILE or --key-file FILE";
  bool same_user_only = false;  // refuse shm peers of other users (ssh-started servers)
  std::size_t wrong_keys = 8;   // from one address, before answers are held back
  bool peers_share = true;      // false: peers may show us no memory of theirs over shm
  bool allow_plaintext = true;  // peers on other hosts may ask for no TLS
  std::vector<Kind> offer = {Kind::kShm, Kind::kVerbs, Kind::kTcp};
};

class Acceptor {
 public:
  virtual ~Acceptor() = default;
  // Binds everything. A verbs or shm listener that cannot be made is logged and left out (offered
  // with the reason to clients); the TCP port is a must. Errors name the port and what holds it.
  static Result<std::unique_ptr<Acceptor>> Create(AcceptorOptions options, SessionHost& host);

  [[nodiscard]] virtual std::uint16_t port() const = 0;
  // Why clients are not offered `kind` now, one sentence; empty where they are. Not during Run.
  [[nodiscard]] virtual std::string WhyNotOffered(Kind kind) const = 0;
  // Serves a session over a stream that is connected already (ssh's stdio). Before or during Run,
  // any thread.
  virtual void Serve(std::unique_ptr<tcp::ByteStream> stream) = 0;
  // Serves until Stop; blocks.
  virtual Status Run() = 0;
  // Any thread, also from a signal's helper thread.
  virtual void Stop() = 0;
};

}  // namespace rdfs::transport
