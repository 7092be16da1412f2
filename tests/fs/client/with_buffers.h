// A test with a lane's buffers, of 64 pages.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "fs/client/buffer.h"

namespace rdfs::fs::client {

class WithBuffers : public testing::Test {
 protected:
  WithBuffers() {
    auto memory =
        SharedMemory::Create("test", 64 * Buffer::kPageBytes, SharedMemory::Peers::kMayWrite);
    region_ = *domain_->Register(*std::move(memory), transport::Access::kLocal);
    pool_.emplace(*region_);
  }
  const std::shared_ptr<transport::Domain> domain_ = transport::Domain::Create("test");
  std::unique_ptr<transport::MemoryRegion> region_;
  std::optional<BufferPool> pool_;
};

}  // namespace rdfs::fs::client
