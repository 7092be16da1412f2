// The service manager that started rdfsd (systemd): what it is told, and the descriptors that it
// keeps from one rdfsd to the next: sd_notify(3), sd_pid_notify_with_fds(3), sd_listen_fds(3),
// FileDescriptorStoreMax= in systemd.service(5). It says who it is in the environment, which is
// read here, and changed by TakePassedDescriptors: before there are threads, or in a process that
// has one.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

// Whether it wants to be told.
[[nodiscard]] bool HasServiceManager();

// Lines as sd_notify(3) has them, and with them up to kMostPassed descriptors, which stay the
// caller's. Blocks until `deadline` while the manager is slow to read. Errors: kNotFound (nobody to
// tell), kDeadlineExceeded, kErrno.
inline constexpr std::size_t kMostPassed = 128;
Status NotifyServiceManager(std::string_view lines, std::span<const int> descriptors,
                            Deadline deadline);
// Blocks until it has dealt with all that it was told before. Errors: the same.
Status WaitForServiceManager(Deadline deadline);

// The descriptors of that name that it started this process with, close-on-exec. Once: the second
// time there are none.
std::vector<Fd> TakePassedDescriptors(std::string_view name);

}  // namespace rdfs::server
