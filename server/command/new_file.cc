#include "server/command/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "transport/base/fd.h"

namespace rdfs::server {
namespace {

// 0 or an errno; EEXIST where there is such a name already. File systems without hard links rename.
int GiveName(const std::string& temporary, const std::string& path) {
  if (::link(temporary.c_str(), path.c_str()) == 0) return 0;
  if (errno == EEXIST) return errno;
  const bool renamed =
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0;
  return renamed ? 0 : errno;
}

// 0 or an errno.
int Fill(int fd, ByteSpan content) {
  const ssize_t written = ::write(fd, content.data(), content.size());
  if (written < 0) return errno;
  if (written != static_cast<ssize_t>(content.size())) return ENOSPC;
  return ::fsync(fd) == 0 ? 0 : errno;
}

}  // namespace

Result<bool> MakeFile(const std::string& path, ByteSpan content) {
  if (::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) return false;
  std::string temporary = path + ".XXXXXX";
  const Fd file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.valid()) return Status::FromErrno(errno, "cannot make " + path);
  int error = Fill(file.get(), content);
  if (error == 0) error = GiveName(temporary, path);
  (void)::unlink(temporary.c_str());
  if (error == EEXIST) return false;
  if (error != 0) return Status::FromErrno(error, "cannot make " + path);
  const std::string folder = path.substr(0, path.find_last_of('/') + 1);
  const Fd names(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some folders refuse: then the name may not outlast a power failure.
  if (names.valid()) (void)::fsync(names.get());
  return true;
}

}  // namespace rdfs::server
