// A program of one's own at the far end of ssh: `ssh HOST PROGRAM ARGUMENTS`, a one-time key
// through its stdin (bootstrap.h), and then its two pipes as the stream of a transport session.
//
// ssh is run without a shell, its standard error is ours, so that the user sees what it says and
// can answer what it asks; of a program that goes to the background it is carried to ours, wherever
// that is by then (error_relay.h). It ignores the terminal's signals where its caller does.
// Relaunched without a person, it asks nothing (BatchMode) and belongs to no terminal. Whoever
// holds the stream holds ssh: with the stream it ends and is reaped.
//
// Any thread; the functions marked pure do no I/O.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/status.h"
#include "transport/session/key.h"
#include "transport/tcp/stream.h"

namespace rdfs::transport::ssh {

// How long a person may take over a password, or over whether a host's key is right.
inline constexpr std::chrono::minutes kTimeToAnswer{3};
// For ResolveHost, where nobody is asked.
inline constexpr std::chrono::seconds kTimeToResolve{5};

// What is to be started, and how its user can change that.
struct Program {
  std::string_view name;       // "rdfsd", for messages
  std::string_view arguments;  // "--stdio": words of ours, which no shell changes
  std::string_view magic;      // of its bootstrap lines
  // What to give when it is not found, when ssh is not, and when it is slow: "-o rdfsd_path=PATH".
  std::string_view path_option, ssh_option, deadline_option;
};

struct Launch {
  Program program;
  std::vector<std::string> ssh_command{"ssh"};
  std::string destination;    // [user@]host
  std::string path;           // of the program there; "~/..." is the far shell's to expand
  std::string text;           // for the program, in its first line
  bool ask = true;            // whether a person is there who can be asked for a password
  bool relay_errors = false;  // ssh does not get our standard error itself
};

struct Started {
  std::unique_ptr<tcp::ByteStream> stream;
  Key key;
};

// Blocks until the far program has said that it is there, or `deadline`. Errors: kUnavailable with
// the far program's sentence, or with what to do about ssh; the same with errno ENOENT when the
// program is not there; kDeadlineExceeded; kInvalidArgument, with no ssh started, where the
// destination is empty or ssh would take it for an option.
Result<Started> Start(const Launch& launch, Deadline deadline);

// The name or address at which ssh reaches the destination (`ssh -G`: its configuration's
// HostName). Falls back to the destination's host when ssh cannot say, or must not be asked
// (Start).
std::string ResolveHost(const Launch& launch, Deadline deadline);

// Pure. Splits as a shell would, without any other meaning than that of blanks, quotes and
// backslashes.
Result<std::vector<std::string>> SplitWords(std::string_view text);
// Pure. What the far shell is given: it may be any of sh, csh and fish.
std::string FarCommand(std::string_view path, std::string_view arguments);
// Pure. The arguments of ssh for a launch, and for `ssh -G`.
std::vector<std::string> SshArguments(const Launch& launch);
std::vector<std::string> SshQueryArguments(const Launch& launch);
// Pure. The value of the line "hostname ..." of `ssh -G`, or nothing.
std::string ParseSshHostname(std::string_view output);
// Pure. What an exit status of ssh means when the far program has not answered.
Status ExplainSshExit(const Launch& launch, int wait_status);

}  // namespace rdfs::transport::ssh
