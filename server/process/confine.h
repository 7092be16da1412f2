// What rdfsd's serving process gives up before it listens: rights that no request needs.
//
// Whoever takes the process over has then what it serves and what its callers may do, and cannot
// trace other processes, mount, load modules, enter namespaces, start programs, or have more than
// it had. The systemd unit takes more away (its file says what); this holds however rdfsd was
// started, by ssh too. Before the first thread: what is given up is given up by those that come
// later. Sources: prctl(2), capabilities(7), seccomp(2).
#pragma once

#include "transport/base/status.h"

namespace rdfs::server {

// No more rights by starting a program with some (PR_SET_NO_NEW_PRIVS), of the capabilities only
// those that exports need, and no system calls that no request needs (they fail with EPERM). A
// kernel that lacks one of the three is told to the log. Errors: kErrno, when capabilities that are
// there cannot be dropped.
Status Confine();

}  // namespace rdfs::server
