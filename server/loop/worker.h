// Worker: what one loop's thread brings to a request: its identity, its file I/O, its buffer.
//
// One a loop, made on the loop's thread and used by it only.
#pragma once

#include <memory>
#include <vector>

#include "server/core.h"
#include "server/identity/identity.h"
#include "server/loop/file_io.h"
#include "server/write/staging.h"
#include "transport/transport.h"

namespace rdfs::server {

struct Worker {
  Worker(Core& core_in, FileIo& io_in)
      : core(core_in),
        io(io_in),
        writer(io_in, clock),
        identity(core_in.options.can_switch_ids),
        reply(transport::kMaxMessageBytes) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Core& core;
  FileIo& io;
  const SystemClock clock;
  FileWriter writer;
  ThreadIdentity identity;
  std::vector<std::byte> reply;  // a reply's body is written here
};

}  // namespace rdfs::server
