// ControlSocket: where a running program of ours says what it is doing, to its own user.
//
// A UNIX socket in a directory that belongs to the user and that nobody else may enter:
// $XDG_RUNTIME_DIR/rdfs, or root's /run/rdfs. A peer of another user, but root, is turned away
// (SO_PEERCRED). One request a connection: a word of at most kMaxRequest bytes and a newline; the
// answer is text up to the end of the stream. A peer that is silent, slow or writes more is dropped
// after a second, and delays the next one only.
//
// One thread of its own, which sleeps until somebody asks and runs `answer`. The file goes with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs {

class ControlSocket {
 public:
  using Answer = std::function<std::string(std::string_view request)>;
  static constexpr std::size_t kMaxRequest = 64;

  // `program` and the process's number are the socket's name. Errors: kNotFound without such a
  // directory, kInvalidArgument where others may enter it, kErrno.
  static Result<std::unique_ptr<ControlSocket>> Listen(const std::string& program, Answer answer);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  ControlSocket(std::string path, Fd listener, Fd stop, Answer answer);
  void Run();
  void Serve(const Fd& peer) const;

  const std::string path_;
  const Fd listener_, stop_;
  const Answer answer_;
  std::thread thread_;
};

// The sockets of this user's running programs of that name. What a killed one left behind is
// removed when nobody answers on it.
std::vector<std::string> FindControlSockets(const std::string& program);

// Asks; blocks at most until `deadline`. Errors: kDisconnected when nobody is there any more,
// kDeadlineExceeded, kProtocolError for an answer without end.
Result<std::string> AskControl(const std::string& path, std::string_view request,
                               Deadline deadline);

}  // namespace rdfs
