// A test with a lane's buffers, and messages of the kernel's in them.
#pragma once

#include <gtest/gtest.h>
#include <linux/fuse.h>

#include <cstring>
#include <memory>
#include <optional>

#include "fs/fuse/request.h"

namespace rdfs::fs::fuse {

class BufferedTest : public testing::Test {
 protected:
  BufferedTest() {
    auto memory = SharedMemory::Create("test", 64 * client::Buffer::kPageBytes,
                                       SharedMemory::Peers::kMayWrite);
    region_ = *domain_->Register(*std::move(memory), transport::Access::kLocal);
    pool_.emplace(*region_);
  }

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

  const std::shared_ptr<transport::Domain> domain_ = transport::Domain::Create("test");
  std::unique_ptr<transport::MemoryRegion> region_;
  std::optional<client::BufferPool> pool_;
};

}  // namespace rdfs::fs::fuse
