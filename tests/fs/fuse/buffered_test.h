// A test with a lane's buffers, and messages of the kernel's in them.
#pragma once

#include <linux/fuse.h>

#include <cstring>

#include "fs/fuse/worker/request.h"
#include "tests/fs/client/with_buffers.h"

namespace rdfs::fs::fuse {

class BufferedTest : public client::WithBuffers {
 protected:
  // A request of the node, and behind its header what belongs to the opcode.
  template <typename... Body>
  Message MessageOf(std::uint32_t opcode, NodeId node, const Body&... body) {
    Message message;
    message.buffer = *pool_->Allocate(client::Buffer::kPageBytes);
    fuse_in_header header{};
    header.opcode = opcode;
    header.nodeid = node;
    std::byte* at = message.buffer.bytes().data();
    const auto append = [&at](const auto& part) {
      std::memcpy(at, &part, sizeof part);
      at += sizeof part;
    };
    append(header);
    (append(body), ...);
    message.size = static_cast<std::uint32_t>(at - message.buffer.bytes().data()) & 0xffffffU;
    return message;
  }
};

}  // namespace rdfs::fs::fuse
