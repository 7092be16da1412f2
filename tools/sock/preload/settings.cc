#include "tools/sock/preload/settings.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace rdfs::sock {
namespace {

constinit Counts g_own_counts;  // nobody looks at them
constinit Settings g_settings{{}, {}, false, false, &g_own_counts};

Counts* MapCounts(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<Counts*>(memory);
}

// Before main, and before any thread of the program's.
__attribute__((constructor)) void ReadSettings() {
  const int saved = errno;
  const auto parse = [](const char* variable, Filter& filter) {
    const char* const text = secure_getenv(variable);
    std::string_view wrong;
    if (text != nullptr) (void)filter.Parse(text, wrong);
  };
  parse(kOnlyVariable, g_settings.only);
  parse(kExceptVariable, g_settings.except);
  const char* const require = secure_getenv(kRequireVariable);
  g_settings.require = require != nullptr;
  g_settings.require_here = require != nullptr && std::string_view(require) == "shm";
  const char* const stats = secure_getenv(kStatsVariable);
  Counts* const counts = stats == nullptr ? nullptr : MapCounts(stats);
  if (counts != nullptr) g_settings.counts = counts;
  errno = saved;
}

}  // namespace

const Settings& TheSettings() { return g_settings; }

}  // namespace rdfs::sock
