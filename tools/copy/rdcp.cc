// rdcp: files and directories, from here to here.
#include <fmt/core.h>

#include "tools/copy/command.h"
#include "tools/copy/report.h"

int main(int argc, char** argv) {
  rdfs::copy::CopyOptions options;
  if (const auto exit = rdfs::copy::ParseCopy(argc, argv, options)) return *exit;
  if (!options.IsLocal()) {
    fmt::print(stderr,
               "rdcp: this version copies on one machine only: use rdsend and rdrecv, or a mount "
               "with rdfs, for other hosts; a local file with ':' in its name is written ./NAME\n");
    return rdfs::copy::kExitUsage;
  }
  return rdfs::copy::RunLocal(options);
}
