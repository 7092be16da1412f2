// rdcp: files and directories, between here and here, or here and other machines.
#include <string_view>

#include "tools/copy/command/command.h"
#include "tools/copy/command/remote_command.h"
#include "tools/copy/remote/far.h"
#include "tools/copy/remote/own_binary.h"

int main(int argc, char** argv) {
  // How an rdcp on another machine starts this one.
  if (argc == 2 && std::string_view(argv[1]) == "--far") return rdfs::copy::RunFar();
  // And one that was sent there for this once: --bootstrap.
  if (argc == 3 && std::string_view(argv[1]) == "--far" &&
      std::string_view(argv[2]) == "--remove") {
    rdfs::copy::RemoveOwnBinary();
    return rdfs::copy::RunFar();
  }
  rdfs::copy::CopyOptions options;
  if (const auto exit = rdfs::copy::ParseCopy(argc, argv, options)) return *exit;
  return options.IsLocal() ? rdfs::copy::RunLocal(options) : rdfs::copy::RunRemote(options);
}
