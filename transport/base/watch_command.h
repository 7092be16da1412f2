// The commands that ask running programs what they are doing: PROGRAM status, stats, top. Of rdfs
// and rdfsd; one thread, the caller's.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rdfs {

// `arguments` without argv[0]. The exit code when the first is one of those commands, which has
// been carried out then: 0, 1 when nobody answered (the reason is on standard error), 2 wrong
// usage. `named`: an operand chooses one by its path.
std::optional<int> RunWatchCommand(const std::string& program,
                                   const std::vector<std::string>& arguments, bool named);

}  // namespace rdfs
