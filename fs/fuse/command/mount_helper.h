// mount.rdfs: what mount(8) and systemd run for `mount -t rdfs SOURCE MNT` and lines of fstab(5).
//
// The same program as rdfs under another name, with the command line that mount(8) gives to its
// helpers (mount(8), "EXTERNAL HELPERS") and the exit statuses that it expects. Pure, as options.h.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fs/fuse/command/options.h"

namespace rdfs::fs::fuse {

// mount(8), "EXIT STATUS".
inline constexpr int kHelperUsage = 1;
inline constexpr int kHelperFailure = 32;

// Whether the program was called as the helper: argv[0].
bool IsMountHelper(std::string_view program);

// The helper's command line without argv[0]. Words that only mount(8), systemd or other readers of
// fstab(5) use are left out; with -s so are all that rdfs does not know.
std::variant<Options, Answer> ParseHelperCommandLine(const std::vector<std::string>& arguments);

// The exit status of the helper where rdfs would have had `exit_code`.
int HelperExitCode(int exit_code);

}  // namespace rdfs::fs::fuse
