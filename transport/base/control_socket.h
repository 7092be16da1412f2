// ControlSocket: where a running program of ours says what it is doing, to its own user.
//
// A UNIX socket in the user's runtime directory (runtime_directory.h), which nobody else may enter.
// A peer of another user, but root, is turned away (SO_PEERCRED). One request a connection: a word
// of at most kMaxRequest bytes and a newline; the answer is text up to the end of the stream. A
// peer that is silent, slow or writes more is dropped after a second, and delays the next one only.
//
// One thread of its own, which sleeps until somebody asks and runs `answer`. The file goes with it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/event_fd.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs {

class ControlSocket {
 public:
  using Answer = std::function<std::string(std::string_view request)>;
  static constexpr std::size_t kMaxRequest = 64;

  // `program` and the process's number are the socket's name. What killed programs of that name
  // have left behind is removed, where no other kernel's may lie beside it (NFS, FUSE). Errors:
  // kInvalidArgument where others may enter the directory, kErrno.
  static Result<std::unique_ptr<ControlSocket>> Listen(const std::string& program, Answer answer);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  ControlSocket(std::string path, Fd listener, EventFd stop, Answer answer);
  void Run();
  void Serve(const Fd& peer) const;

  const std::string path_;
  const Fd listener_;
  const EventFd stop_;
  const Answer answer_;
  std::thread thread_;
};

// The sockets of this user's running programs of that name. What a killed one left behind is
// removed when nobody answers on it (on a file system of this host).
std::vector<std::string> FindControlSockets(const std::string& program);

// Those of other users, one after the other, for root: `ask` is given a path that leads to this
// very socket, whatever its owner does meanwhile, until it returns. False: this owner is asked no
// more. What they answer is not to be believed. At most kMostOfOthers of one owner.
inline constexpr std::size_t kMostOfOthers = 256;
void VisitForeignControlSockets(
    const std::string& program,
    const std::function<bool(uid_t owner, const std::string& path)>& ask);

// Asks; blocks at most until `deadline`. Errors: kDisconnected when nobody is there any more,
// kDeadlineExceeded, kProtocolError for an answer without end.
Result<std::string> AskControl(const std::string& path, std::string_view request,
                               Deadline deadline);

}  // namespace rdfs
