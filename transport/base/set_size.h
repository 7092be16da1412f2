// Sets the size of a memory file (memfd_create(2)).
#pragma once

#include <cstddef>

namespace rdfs {

// ftruncate(2) of what memfd_create(2) made. Where files may not be so large (RLIMIT_FSIZE) errno
// is EFBIG, and the signal that would end the program, SIGXFSZ, is not raised.
bool SetSize(int memfd, std::size_t size);

}  // namespace rdfs
