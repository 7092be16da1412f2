#include "tools/pipe/io/head.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

namespace rdfs::pipe {

Result<std::shared_ptr<Head>> Head::Create() {
  Fd told(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!told.valid()) return Status::FromErrno(errno, "eventfd");
  return std::shared_ptr<Head>(new Head(std::move(told)));
}

void Head::Set(Fd file, std::uint64_t bytes) {
  file_ = std::move(file);
  bytes_ = bytes;
  known_.store(true, std::memory_order_release);
  (void)eventfd_write(told_.get(), 1);
}

}  // namespace rdfs::pipe
