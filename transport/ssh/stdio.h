// The far end of ssh: a program that was started there by launch.h, and speaks through its standard
// input and output. One thread, before any other is made.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/base/clock.h"
#include "transport/base/status.h"
#include "transport/session/key.h"
#include "transport/tcp/stream.h"

namespace rdfs::transport::ssh {

struct Bootstrap {
  Key key;
  std::string text;
};

// Reads the caller's line and nothing behind it. Errors: kProtocolError, with `hint` when there is
// no such line: what a person who typed this should do.
Result<Bootstrap> ReadBootstrap(std::string_view magic, std::string_view hint, Deadline deadline);
// Says how the start went. After a failure the other end tells its user.
void Answer(std::string_view magic, const Status& outcome);
// Standard input and output become the stream; nothing else writes to them by mistake.
std::unique_ptr<tcp::ByteStream> TakeStdio();

}  // namespace rdfs::transport::ssh
