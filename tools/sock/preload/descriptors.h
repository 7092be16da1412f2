// The system calls that copy and close descriptors, or set what they do, by number. Any thread,
// also in a signal handler.
#pragma once

namespace rdfs::sock {

bool ChangesDescriptors(long number);
// One of those, as the C library's function for it goes. `a`: its arguments.
int ChangeBySystemCall(long number, const long* a);

}  // namespace rdfs::sock
