#include "tools/copy/command/setup.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "tools/copy/file/names.h"
#include "transport/base/fd.h"
#include "transport/base/sigpipe.h"

namespace rdfs::copy {
namespace {

// Directories, files under way, and room for what libraries open.
constexpr rlim_t kDescriptors = 65536;
// As the kernel has it; an export's server may lie.
constexpr int kMostLinks = 40;

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptors) return;
  limit.rlim_cur = std::min(limit.rlim_max, kDescriptors);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

mode_t SetUpProcess() {
  HoldStandardDescriptors();
  IgnoreSigpipe();
  (void)signal(SIGXFSZ, SIG_IGN);  // a call that fails tells
  (void)signal(SIGCHLD, SIG_DFL);  // ignored, nobody is told how ssh has ended
  RaiseDescriptorLimit();
  return umask(0);
}

Result<Targets> PlaceHere(const std::vector<SourceFacts>& sources, std::string destination,
                          const FilePtr& from) {
  struct stat info {};
  const bool exists = from->Stat(destination, true, info) == 0;
  const bool is_directory = exists && S_ISDIR(info.st_mode);
  struct stat link {};
  const std::string named = destination;
  for (int links = 0;
       !is_directory && from->Stat(destination, false, link) == 0 && S_ISLNK(link.st_mode);
       ++links) {
    std::string target;
    if (!exists || links == kMostLinks || from->ReadLink(destination, target) != 0) {
      return Status(Code::kInvalidArgument, "'" + Shown(named) +
                                                "' is a symlink that leads nowhere: remove it "
                                                "first");
    }
    const std::size_t slash = target.starts_with('/') ? std::string::npos : destination.rfind('/');
    destination = slash == std::string::npos ? target : destination.substr(0, slash + 1) + target;
  }
  return PlaceTargets(sources, destination, {exists, is_directory});
}

}  // namespace rdfs::copy
