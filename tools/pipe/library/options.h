// The options of a stream: "word,word=value", as rdfs_pipe_send and rdfs_pipe_listen take them.
// Pure but for the key's file. Errors: kInvalidArgument, one sentence that says which words there
// are.
#pragma once

#include <cstdint>
#include <string_view>

#include "tools/pipe/command/options.h"

namespace rdfs::pipe {

// `key` nullptr: the option key_file names it.
Result<SendOptions> SendOptionsFrom(std::string_view hosts, std::uint16_t port, const char* key,
                                    std::string_view words);
Result<ReceiveOptions> ReceiveOptionsFrom(std::uint16_t port, const char* key,
                                          std::string_view words);

}  // namespace rdfs::pipe
