#include "tools/copy/setup.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "tools/copy/names.h"

namespace rdfs::copy {
namespace {

// Directories, files under way, and room for what libraries open.
constexpr rlim_t kDescriptors = 65536;

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptors) return;
  limit.rlim_cur = std::min(limit.rlim_max, kDescriptors);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

mode_t SetUpProcess() {
  (void)signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  return umask(0);
}

Result<Targets> PlaceHere(const std::vector<SourceFacts>& sources, std::string destination) {
  struct stat info {};
  const bool exists = stat(destination.c_str(), &info) == 0;
  const bool is_directory = exists && S_ISDIR(info.st_mode);
  struct stat link {};
  if (!is_directory && lstat(destination.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    char* resolved = realpath(destination.c_str(), nullptr);
    if (resolved == nullptr) {
      return Status(Code::kInvalidArgument, "'" + Shown(destination) +
                                                "' is a symlink that leads nowhere: remove it "
                                                "first");
    }
    destination = resolved;
    free(resolved);  // NOLINT: as realpath(3) says
  }
  return PlaceTargets(sources, destination, {exists, is_directory});
}

}  // namespace rdfs::copy
