// The reply to FUSE_INIT with flags of ours that libfuse would not send to the kernel.
//
// libfuse writes that reply. It knows no flags that are newer than itself, and takes
// HANDLE_KILLPRIV for wanted without ever sending it (3.14). So replies go to /dev/fuse through a
// function of ours, which adds Filesystem::init_flags to that one. Source: fuse_lowlevel.h
// (fuse_session_custom_io), linux/fuse.h.
#pragma once

#include <fuse3/fuse_lowlevel.h>

#include "transport/base/status.h"

namespace rdfs::fs::fuse {

// fuse_session_custom_io came with libfuse 3.13.
inline constexpr bool kInitReplyCanBeChanged = FUSE_VERSION >= FUSE_MAKE_VERSION(3, 13);

// Of a session that is mounted, before its first request is looked at. Its user data is a
// Filesystem. Does nothing where libfuse has no way for it.
Status SendRepliesOurselves(fuse_session* session);

}  // namespace rdfs::fs::fuse
