#include "transport/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "transport/base/set_size.h"

namespace rdfs {
namespace {

constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1, linux/fcntl.h
#endif

std::size_t RoundUpToPages(std::size_t size) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

Result<std::byte*> Map(int fd, std::size_t size, int protection, std::size_t offset = 0) {
  void* data = mmap(nullptr, size, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return Status::FromErrno(errno, "cannot map shared memory");
  return static_cast<std::byte*>(data);
}

}  // namespace

Result<std::shared_ptr<SharedMemory>> SharedMemory::Create(const std::string& name,
                                                           std::size_t size, Peers peers) {
  if (size == 0) return Status(Code::kInvalidArgument, "shared memory of size 0");
  size = RoundUpToPages(size);
  Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::FromErrno(errno, "memfd_create");
  if (!SetSize(fd.get(), size)) {
    const bool limited = errno == EFBIG;
    return Status::FromErrno(errno, limited ? "shared memory is larger than files may be: raise "
                                              "`ulimit -f`"
                                            : "cannot size shared memory");
  }
  RDFS_ASSIGN_OR_RETURN(std::byte * data, Map(fd.get(), size, PROT_READ | PROT_WRITE));
  std::shared_ptr<SharedMemory> memory(new SharedMemory(std::move(fd), data, size, peers));
  // A refusal only costs speed: transparent huge pages may be off for shared memory.
  (void)madvise(data, size, MADV_HUGEPAGE);
  // A child process must not hold pages that the NIC may be writing to.
  (void)madvise(data, size, MADV_DONTFORK);
  const int seals = kFixedSize | (peers == Peers::kReadOnly ? F_SEAL_FUTURE_WRITE : 0);
  if (fcntl(memory->fd(), F_ADD_SEALS, seals) != 0) {
    return Status::FromErrno(errno, "cannot seal shared memory");
  }
  return memory;
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::Adopt(Fd fd, std::size_t size, Peers peers) {
  const int wanted = kFixedSize | (peers == Peers::kReadOnly ? F_SEAL_FUTURE_WRITE : 0);
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & wanted) != wanted) {
    return Status(Code::kProtocolError,
                  "the peer sent memory that it could still shrink or change");
  }
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return Status::FromErrno(errno, "fstat of received memory");
  if (size == 0 || static_cast<std::uint64_t>(st.st_size) != size) {
    return Status(Code::kProtocolError, "the peer sent memory of another size than it said");
  }
  const int protection = peers == Peers::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  RDFS_ASSIGN_OR_RETURN(std::byte * data, Map(fd.get(), size, protection));
  // The mapping is enough, and descriptors are few: a peer must not take ours by sending memory.
  return std::shared_ptr<SharedMemory>(new SharedMemory(Fd(), data, size, peers));
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::Part(int fd, std::size_t offset,
                                                         std::size_t size) {
  if (size == 0 || RoundUpToPages(size) != size || RoundUpToPages(offset) != offset) {
    return Status(Code::kInvalidArgument, "a part of shared memory that is not of whole pages");
  }
  RDFS_ASSIGN_OR_RETURN(std::byte * data, Map(fd, size, PROT_READ | PROT_WRITE, offset));
  (void)madvise(data, size, MADV_DONTFORK);
  return std::shared_ptr<SharedMemory>(new SharedMemory(Fd(), data, size, Peers::kMayWrite));
}

SharedMemory::~SharedMemory() { munmap(data_, size_); }

}  // namespace rdfs
