// What stands before "://" in a word that somebody gives for a place: of a URL, or a host's name
// with a path behind it ("node:/" + "/data"). Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace rdfs {

// "http" of "http://...", which ssh would be asked for as a host; empty where it may be one.
inline std::string_view SchemeOf(std::string_view text) {
  constexpr auto kSchemes = std::to_array<std::string_view>({"http", "https", "ftp", "ftps", "sftp",
                                                             "scp", "ssh", "rsync", "file", "nfs",
                                                             "smb", "cifs", "dav", "davs", "rdfs"});
  const std::string_view word = text.substr(0, text.find(':'));
  if (!text.substr(word.size()).starts_with("://")) return {};
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  const auto is_word = [&](std::string_view scheme) {
    return std::ranges::equal(word, scheme, same);
  };
  return std::ranges::any_of(kSchemes, is_word) ? word : std::string_view();
}

}  // namespace rdfs
