#include "tools/pipe/io/head.h"

#include <utility>

namespace rdfs::pipe {

Result<std::shared_ptr<Head>> Head::Create() {
  RDFS_ASSIGN_OR_RETURN(EventFd told, EventFd::Create());
  return std::shared_ptr<Head>(new Head(std::move(told)));
}

void Head::Set(Fd file, std::uint64_t bytes) {
  file_ = std::move(file);
  bytes_ = bytes;
  known_.store(true, std::memory_order_release);
  told_.Ring();
}

}  // namespace rdfs::pipe
