// FuseMount: the kernel's side of a mount, from fuse_session_new to the unmount.
//
// Made by the main thread; Unmount and End by any. It is declared behind the Filesystem that it
// serves and outlives the workers. As root it mounts by itself, else fusermount3 does it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fs/fuse/command/options.h"
#include "fs/fuse/filesystem.h"
#include "transport/base/status.h"

namespace rdfs::fs::fuse {

class FuseMount {
 public:
  // Mounts on `mount_point` (absolute, without symlinks). Requests wait in the kernel until a
  // worker runs. Errors: one sentence with what mount(2) or fusermount3 said.
  static Result<std::unique_ptr<FuseMount>> Create(const Options& options,
                                                   const std::string& mount_point,
                                                   Filesystem& filesystem);
  FuseMount(const FuseMount&) = delete;
  FuseMount& operator=(const FuseMount&) = delete;
  // Ends it if it has not ended.
  ~FuseMount();
  // Takes the mount away from the kernel, detaching it if it is still there, and leaves alone what
  // somebody else has mounted on its path; no request comes after this. One thread, after the
  // workers.
  void End();

  [[nodiscard]] fuse_session* session() const { return session_; }
  [[nodiscard]] const std::string& mount_point() const { return mount_point_; }

  // Unmounts as umount(8) would: what programs have written is with the server when it returns.
  // Blocks while the workers answer. EBUSY when a program uses the mount, kNotFound when somebody
  // has detached it already.
  Status Unmount();
  // Takes it out of the directory tree; programs that use it go on until they let go of it.
  Status Detach();

  // Waits until the mount answers, and (as root, unless `read_ahead_kib` is 0) raises its
  // read-ahead.
  Status WaitUntilUp(unsigned read_ahead_kib);
  // "0:45", as /proc/self/mountinfo names it. Once it is up.
  [[nodiscard]] const std::string& device() const { return device_; }

 private:
  FuseMount(fuse_session* session, std::string mount_point)
      : session_(session), mount_point_(std::move(mount_point)) {}
  // Whether what is mounted on its path now is this mount.
  [[nodiscard]] bool IsOnItsPath(std::string_view mountinfo) const;

  fuse_session* session_;
  const std::string mount_point_;
  std::string device_;
  std::atomic<bool> detached_{false};
  bool ended_ = false;
};

// Takes away what an rdfs that is no more has left mounted on `path`; programs that still hold
// files of it get ENOTCONN as before. kNotFound when there is no such mount.
Status EndStaleMount(const std::string& path);

// The arguments of fuse_session_new. Pure.
std::vector<std::string> SessionArguments(const Options& options, std::uint32_t max_transfer_bytes,
                                          bool root);

}  // namespace rdfs::fs::fuse
