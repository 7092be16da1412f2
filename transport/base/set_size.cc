#include "transport/base/set_size.h"

#include <unistd.h>

#include "transport/base/sigpipe.h"

namespace rdfs {

bool SetSize(int memfd, std::size_t size) {
  const SignalHeld held(SIGXFSZ);
  return ftruncate(memfd, static_cast<off_t>(size)) == 0;
}

}  // namespace rdfs
