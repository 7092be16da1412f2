// rdfs.h: every operation, in the form that returns at once and the one that waits.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "fs/library/operations.h"
#include "fs/library/queue.h"
#include "fs/library/transfers.h"

namespace {

using namespace rdfs::fs::library;
using Start = rdfs_queue::Start;

// What is to be done, checked; or an errno.
struct Task {
  std::string what;
  Start start;
  int refused = 0;
  bool closes = false;
};

Task Refused(std::string what) { return {.what = std::move(what), .start = {}, .refused = EINVAL}; }

int Submit(rdfs_queue* queue, Task task, void* user) {
  if (queue == nullptr) return -EINVAL;
  if (task.refused != 0) return queue->Refuse(task.what, task.refused);
  return queue->Submit(std::move(task.what), user, std::move(task.start), task.closes);
}

// The operation is over; null where it was not begun, and `refused` says how.
OperationPtr Wait(rdfs_queue* queue, const Task& task, int& refused) {
  if (queue == nullptr) {
    refused = -EINVAL;
    return nullptr;
  }
  refused = task.refused;
  OperationPtr operation =
      refused == 0 ? queue->BeginToWait(task.what, task.start, task.closes) : nullptr;
  if (operation == nullptr) {
    refused = queue->Refuse(task.what, refused == 0 ? EAGAIN : refused);
    return nullptr;
  }
  queue->WaitFor(*operation);
  refused = queue->Report(*operation);
  return operation;
}

int Wait(rdfs_queue* queue, const Task& task) {
  int result = 0;
  (void)Wait(queue, task, result);
  return result;
}

std::string_view Text(const char* path) { return path == nullptr ? "" : path; }
// Every operation makes one, which hardly any tells. (By fmt it was a tenth of the instructions of
// a read of 4 KiB.)
std::string What(std::string_view doing, std::string_view path) {
  std::string what;
  what.reserve(doing.size() + path.size() + 3);
  return what.append(doing).append(" '").append(path).append("'");
}
std::string What(const char* doing, const char* path) { return What(doing, Text(path)); }
std::string What(const char* doing, const rdfs_file* file) {
  return What(doing, file == nullptr ? std::string_view() : file->path);
}

Task Open(rdfs_queue* queue, const char* path, int flags, std::uint32_t mode) {
  std::string what = What("opening", path);
  if (path == nullptr || (flags & (O_DIRECTORY | O_PATH)) != 0) return Refused(std::move(what));
  return {.what = std::move(what),
          .start = [queue, name = std::string(path), flags, mode](const OperationPtr& operation) {
            StartOpen(*queue, operation, name, flags, mode);
          }};
}

Task Close(rdfs_queue* queue, rdfs_file* file) {
  std::string what = What("closing", file);
  if (file == nullptr) return Refused(std::move(what));
  return {.what = std::move(what),
          .start = [queue,
                    file](const OperationPtr& operation) { StartClose(*queue, operation, file); },
          .refused = 0,
          .closes = true};
}

// A range of a file and of a buffer. No offset is beyond what off_t can say.
Task Transferring(rdfs_queue* queue, rdfs_file* file, rdfs_buffer* buffer, const Transfer& range,
                  bool read) {
  std::string what = What(read ? "reading" : "writing", file);
  if (file == nullptr || buffer == nullptr || &buffer->queue != queue ||
      range.length > RDFS_MAX_TRANSFER || range.at > buffer->memory->size() ||
      range.length > buffer->memory->size() - range.at || range.offset > INT64_MAX - range.length) {
    return Refused(std::move(what));
  }
  Transfer transfer = range;
  transfer.memory = buffer->memory;
  return {.what = std::move(what),
          .start = [queue, file, transfer, read](const OperationPtr& operation) {
            (read ? StartRead : StartWrite)(*queue, operation, *file, transfer);
          }};
}

Task Fsync(rdfs_queue* queue, rdfs_file* file, int data_only) {
  std::string what = What("syncing", file);
  if (file == nullptr) return Refused(std::move(what));
  return {.what = std::move(what),
          .start = [queue, file, data_only](const OperationPtr& operation) {
            StartFsync(*queue, operation, *file, data_only != 0);
          }};
}

Task Truncate(rdfs_queue* queue, rdfs_file* file, std::uint64_t size) {
  std::string what = What("truncating", file);
  if (file == nullptr || size > INT64_MAX) return Refused(std::move(what));
  return {.what = std::move(what), .start = [queue, file, size](const OperationPtr& operation) {
            StartTruncate(*queue, operation, *file, size);
          }};
}

Task Fstat(rdfs_queue* queue, rdfs_file* file, rdfs_attributes* out) {
  std::string what = What("looking at", file);
  if (file == nullptr || out == nullptr) return Refused(std::move(what));
  return {.what = std::move(what), .start = [queue, file, out](const OperationPtr& operation) {
            StartFstat(*queue, operation, *file, out);
          }};
}

Task Stat(rdfs_queue* queue, const char* path, int flags, rdfs_attributes* out) {
  std::string what = What("looking at", path);
  if (path == nullptr || out == nullptr || (flags & ~AT_SYMLINK_NOFOLLOW) != 0) {
    return Refused(std::move(what));
  }
  return {.what = std::move(what),
          .start = [queue, name = std::string(path), flags, out](const OperationPtr& operation) {
            StartStat(*queue, operation, name, (flags & AT_SYMLINK_NOFOLLOW) == 0, out);
          }};
}

// Operations on one name.
using OnName = void (*)(rdfs_queue&, const OperationPtr&, const std::string&);
Task Named(rdfs_queue* queue, const char* doing, const char* path, OnName start) {
  std::string what = What(doing, path);
  if (path == nullptr) return Refused(std::move(what));
  return {.what = std::move(what),
          .start = [queue, name = std::string(path), start](const OperationPtr& operation) {
            start(*queue, operation, name);
          }};
}

Task Mkdir(rdfs_queue* queue, const char* path, std::uint32_t mode) {
  std::string what = What("making the directory", path);
  if (path == nullptr) return Refused(std::move(what));
  return {.what = std::move(what),
          .start = [queue, name = std::string(path), mode](const OperationPtr& operation) {
            StartMkdir(*queue, operation, name, mode);
          }};
}

Task Rename(rdfs_queue* queue, const char* from, const char* to, unsigned flags) {
  std::string what = fmt::format("renaming '{}' to '{}'", Text(from), Text(to));
  // These bits are renameat2(2)'s, and the protocol's: the first two are the same.
  constexpr unsigned kKnown = rdfs::fs::kRenameNoReplace | rdfs::fs::kRenameExchange;
  if (from == nullptr || to == nullptr || (flags & ~kKnown) != 0) return Refused(std::move(what));
  return {.what = std::move(what),
          .start = [queue, old_name = std::string(from), new_name = std::string(to),
                    flags](const OperationPtr& operation) {
            StartRename(*queue, operation, old_name, new_name, flags);
          }};
}

Task Symlink(rdfs_queue* queue, const char* target, const char* path) {
  std::string what = What("making the symlink", path);
  if (target == nullptr || path == nullptr) return Refused(std::move(what));
  return {
      .what = std::move(what),
      .start = [queue, to = std::string(target), name = std::string(path)](
                   const OperationPtr& operation) { StartSymlink(*queue, operation, to, name); }};
}

}  // namespace

extern "C" {

int rdfs_submit_open(rdfs_queue* queue, const char* path, int flags, uint32_t mode, void* user) {
  return Submit(queue, Open(queue, path, flags, mode), user);
}
int rdfs_submit_close(rdfs_queue* queue, rdfs_file* file, void* user) {
  return Submit(queue, Close(queue, file), user);
}
int rdfs_submit_pread(rdfs_queue* queue, rdfs_file* file, rdfs_buffer* buffer, size_t at,
                      size_t length, uint64_t offset, void* user) {
  const Transfer range{.memory = nullptr, .at = at, .length = length, .offset = offset};
  return Submit(queue, Transferring(queue, file, buffer, range, true), user);
}
int rdfs_submit_pwrite(rdfs_queue* queue, rdfs_file* file, rdfs_buffer* buffer, size_t at,
                       size_t length, uint64_t offset, void* user) {
  const Transfer range{.memory = nullptr, .at = at, .length = length, .offset = offset};
  return Submit(queue, Transferring(queue, file, buffer, range, false), user);
}
int rdfs_submit_fsync(rdfs_queue* queue, rdfs_file* file, int data_only, void* user) {
  return Submit(queue, Fsync(queue, file, data_only), user);
}
int rdfs_submit_truncate(rdfs_queue* queue, rdfs_file* file, uint64_t size, void* user) {
  return Submit(queue, Truncate(queue, file, size), user);
}
int rdfs_submit_fstat(rdfs_queue* queue, rdfs_file* file, rdfs_attributes* out, void* user) {
  return Submit(queue, Fstat(queue, file, out), user);
}
int rdfs_submit_stat(rdfs_queue* queue, const char* path, int flags, rdfs_attributes* out,
                     void* user) {
  return Submit(queue, Stat(queue, path, flags, out), user);
}
int rdfs_submit_list(rdfs_queue* queue, const char* path, void* user) {
  return Submit(queue, Named(queue, "listing", path, StartList), user);
}
int rdfs_submit_mkdir(rdfs_queue* queue, const char* path, uint32_t mode, void* user) {
  return Submit(queue, Mkdir(queue, path, mode), user);
}
int rdfs_submit_rmdir(rdfs_queue* queue, const char* path, void* user) {
  return Submit(queue, Named(queue, "removing the directory", path, StartRmdir), user);
}
int rdfs_submit_unlink(rdfs_queue* queue, const char* path, void* user) {
  return Submit(queue, Named(queue, "removing", path, StartUnlink), user);
}
int rdfs_submit_rename(rdfs_queue* queue, const char* from, const char* to, unsigned flags,
                       void* user) {
  return Submit(queue, Rename(queue, from, to, flags), user);
}
int rdfs_submit_symlink(rdfs_queue* queue, const char* target, const char* path, void* user) {
  return Submit(queue, Symlink(queue, target, path), user);
}

int rdfs_open(rdfs_queue* queue, const char* path, int flags, uint32_t mode, rdfs_file** out) {
  if (out == nullptr) return -EINVAL;
  int result = 0;
  const OperationPtr operation = Wait(queue, Open(queue, path, flags, mode), result);
  if (result == 0) *out = queue->owner().Add(std::move(operation->file));
  return result;
}
int rdfs_close(rdfs_queue* queue, rdfs_file* file) {
  if (queue != nullptr && !queue->owner().IsOfThisProcess()) return 0;
  return Wait(queue, Close(queue, file));
}

ssize_t rdfs_pread(rdfs_queue* queue, rdfs_file* file, void* to, size_t length, uint64_t offset) {
  if (queue == nullptr) return -EINVAL;
  const std::string what = What("reading", file);
  if (file == nullptr || (to == nullptr && length > 0) || length > SSIZE_MAX ||
      offset > INT64_MAX - length) {
    return queue->Refuse(what, EINVAL);
  }
  return ReadInto(*queue, *file, what, {static_cast<std::byte*>(to), length}, offset);
}
ssize_t rdfs_pwrite(rdfs_queue* queue, rdfs_file* file, const void* from, size_t length,
                    uint64_t offset) {
  if (queue == nullptr) return -EINVAL;
  const std::string what = What("writing", file);
  if (file == nullptr || (from == nullptr && length > 0) || length > SSIZE_MAX ||
      offset > INT64_MAX - length) {
    return queue->Refuse(what, EINVAL);
  }
  return WriteFrom(*queue, *file, what, {static_cast<const std::byte*>(from), length}, offset);
}

int rdfs_fsync(rdfs_queue* queue, rdfs_file* file, int data_only) {
  return Wait(queue, Fsync(queue, file, data_only));
}
int rdfs_truncate(rdfs_queue* queue, rdfs_file* file, uint64_t size) {
  return Wait(queue, Truncate(queue, file, size));
}
int rdfs_fstat(rdfs_queue* queue, rdfs_file* file, rdfs_attributes* out) {
  return Wait(queue, Fstat(queue, file, out));
}
int rdfs_stat(rdfs_queue* queue, const char* path, int flags, rdfs_attributes* out) {
  return Wait(queue, Stat(queue, path, flags, out));
}
int rdfs_list(rdfs_queue* queue, const char* path, rdfs_listing** out) {
  if (out == nullptr) return -EINVAL;
  int result = 0;
  const OperationPtr operation = Wait(queue, Named(queue, "listing", path, StartList), result);
  if (result == 0) *out = operation->listing.release();
  return result;
}
int rdfs_mkdir(rdfs_queue* queue, const char* path, uint32_t mode) {
  return Wait(queue, Mkdir(queue, path, mode));
}
int rdfs_rmdir(rdfs_queue* queue, const char* path) {
  return Wait(queue, Named(queue, "removing the directory", path, StartRmdir));
}
int rdfs_unlink(rdfs_queue* queue, const char* path) {
  return Wait(queue, Named(queue, "removing", path, StartUnlink));
}
int rdfs_rename(rdfs_queue* queue, const char* from, const char* to, unsigned flags) {
  return Wait(queue, Rename(queue, from, to, flags));
}
int rdfs_symlink(rdfs_queue* queue, const char* target, const char* path) {
  return Wait(queue, Symlink(queue, target, path));
}
ssize_t rdfs_readlink(rdfs_queue* queue, const char* path, char* text, size_t size) {
  if (text == nullptr || size == 0) return -EINVAL;
  int result = 0;
  const OperationPtr operation =
      Wait(queue, Named(queue, "reading the symlink", path, StartReadlink), result);
  if (result != 0) return result;
  const std::size_t length = std::min(size, operation->text.size());
  std::memcpy(text, operation->text.data(), length);
  return static_cast<ssize_t>(length);
}

}  // extern "C"
