// Looking at what lies below an export, whatever is mounted there.
//
// A mount of rdfs below an export may be one of this very server: whoever asks it waits for
// himself, and everybody else for him. So its root is recognised by what the kernel knows without
// asking (AT_STATX_DONT_SYNC), and answers EREMOTE. Other mounts are crossed.
//
// Any thread; blocking as the file system blocks.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "server/session/export.h"

namespace rdfs::server {

// As statx(2) with kStatxMask, of a name in `directory`, which is not followed, or with an empty
// name of the descriptor itself. Returns an errno.
int StatBeneath(const Export& exported, int directory, const std::string& name, struct statx& out);

// Whether it is an rdfs's, by the text of /proc/self/mountinfo (proc_pid_mountinfo(5)).
bool IsOurMount(std::string_view mountinfo, unsigned major, unsigned minor);

}  // namespace rdfs::server
