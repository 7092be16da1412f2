// A server of one's own at the far end of ssh: `ssh HOST rdfsd --stdio`, a one-time key through its
// stdin, and then its two pipes as the stream of a transport session.
//
// ssh is run without a shell, its standard error is ours, so that the user sees what it says and
// can answer what it asks. It ignores the terminal's signals (an unmount may still need it).
// Relaunched without a person, it asks nothing (BatchMode) and belongs to no terminal. Whoever
// holds the stream holds ssh: with the stream it ends and is reaped.
//
// Any thread; the functions marked pure do no I/O.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fs/fuse/options.h"
#include "transport/base/clock.h"
#include "transport/base/status.h"
#include "transport/session/key.h"
#include "transport/tcp/stream.h"

namespace rdfs::fs::fuse {

struct SshLaunch {
  std::vector<std::string> ssh_command{"ssh"};
  std::string destination;  // [user@]host
  std::string directory;
  std::string rdfsd_path = "rdfsd";
  bool ask = true;  // whether a person is there who can be asked for a password
};

struct Bootstrapped {
  std::unique_ptr<transport::tcp::ByteStream> stream;
  transport::Key key;
};

// Blocks until the far rdfsd has said that it is there, or `deadline`. Errors: kUnavailable with
// the far server's sentence, or with what to do about ssh or the missing rdfsd; kDeadlineExceeded.
Result<Bootstrapped> LaunchOverSsh(const SshLaunch& launch, Deadline deadline);

// The name or address at which ssh reaches the destination (`ssh -G`: its configuration's
// HostName). Falls back to the destination's host when ssh cannot say.
std::string ResolveSshHost(const SshLaunch& launch, Deadline deadline);

// Pure. What the far shell is given: it may be any of sh, csh and fish.
std::string FarCommand(std::string_view rdfsd_path);
// Pure. The arguments of ssh for a launch, and for `ssh -G`.
std::vector<std::string> SshArguments(const SshLaunch& launch);
std::vector<std::string> SshQueryArguments(const SshLaunch& launch);
// Pure. The value of the line "hostname ..." of `ssh -G`, or nothing.
std::string ParseSshHostname(std::string_view output);
// Pure. What an exit status of ssh means when the far rdfsd has not answered.
Status ExplainSshExit(const SshLaunch& launch, int wait_status);

}  // namespace rdfs::fs::fuse
