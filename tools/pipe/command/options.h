// The command lines of rdsend and rdrecv, and where the key comes from.
//
// Parsing takes the key out of the process's own arguments: see ScrubArguments. One thread, before
// any other is made.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/pipe/io/sink.h"
#include "transport/session/key.h"
#include "transport/transport.h"

namespace rdfs::pipe {

struct CommonOptions {
  std::uint16_t port = 0;
  transport::Key key;
  std::string file;                        // empty: standard input or output
  std::optional<transport::Kind> require;  // this transport only
  bool encrypt = false;
  bool quiet = false;  // no progress
  int verbosity = 0;
  std::chrono::milliseconds silence{60000};       // of the peer, that is put up with; 0: any
  std::optional<std::chrono::milliseconds> wait;  // for the peer
};

struct SendOptions : CommonOptions {
  // Where it goes, each from the one before.
  std::vector<transport::HostAndPort> hosts;
  // The receivers know the key as one of a chain: see RelayKey.
  bool relayed = false;
  bool plaintext = false;
  std::optional<int> level;  // zstd's
};

struct ReceiveOptions : CommonOptions {
  std::string listen;            // address; empty: all
  std::uint16_t verbs_port = 0;  // 0: the next
  bool keep_partial = false;
  bool resume = false;
  std::vector<transport::HostAndPort> forward;  // behind those whom the sender names
  std::uint32_t piece_bytes = 0;                // of the ring's slots; 0: what suits the transport
  std::uint32_t pieces = 0;                     // slots; 0: likewise
};

// What main returns at once: help was printed, or a wrong command line was told (2), or no key (1).
struct Exit {
  int code;
};

// Both print what is wrong, one sentence, on standard error.
std::optional<Exit> ParseSend(int argc, char** argv, SendOptions& out);
std::optional<Exit> ParseReceive(int argc, char** argv, ReceiveOptions& out);

// "HOST,HOST:PORT,[ADDRESS]:PORT ..."; a HOST alone has `port`. Errors: kInvalidArgument, also for
// port 0 and for more than a hello has room for.
Result<std::vector<transport::HostAndPort>> ParseHosts(const std::string& text, std::uint16_t port);
// Whether a hello has room for them. Errors: kInvalidArgument.
Status CheckHops(const std::vector<transport::HostAndPort>& hosts);
// The reverse, of one.
std::string HopName(const transport::HostAndPort& hop);

// Overwrites every argument that is `secret`: /proc/PID/cmdline shows nothing of it from then on.
void ScrubArguments(int argc, char** argv, const std::string& secret);

}  // namespace rdfs::pipe
