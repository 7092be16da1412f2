// Dialling: from a host's name to a vestibule on which a session stands.
//
// Blocks, under the caller's deadline; one thread. What comes out is Session's (session.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/session/frame_stream.h"
#include "transport/session/handshake.h"
#include "transport/session/messages.h"
#include "transport/session/session.h"

namespace rdfs::transport::session {

// A vestibule on which the server has admitted us.
struct Dialled {
  std::unique_ptr<FrameStream> vestibule;
  // What connects to the same machine again: first the address that answered.
  std::vector<std::string> hosts;
  bool over_given_stream = false;
  Agreement agreement;
  SessionGrant grant;
};

// Takes options.stream.
Result<Dialled> DialServer(DialOptions& options);

}  // namespace rdfs::transport::session
