// A command line for CLI11, where it does not take each word as it stands, and does not look
// whether what it prints is taken.
//
// A list in brackets is to CLI11 as many words as it has commas, and '[]' none, where an option or
// positional takes several: "[old]" as a path would be "old". Any thread.
#pragma once

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/base/say.h"

namespace rdfs {

// As app.parse, with everything declared before; throws what that does.
inline void ParseWords(CLI::App& app, int argc, const char* const* argv) {
  // No word that a program is given has a NUL in it: at the end of one it hides the bracket there.
  constexpr char kMark = '\0';
  std::vector<std::string> reversed;  // as CLI11 wants it
  for (int i = argc - 1; i > 0; --i) {
    std::string& word = reversed.emplace_back(argv[i]);
    if (word.starts_with('[')) word += kMark;
  }
  // Before anything checks a value, or turns it into what it stands for.
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a flag
    option->transform([](std::string word) {
      if (word.ends_with(kMark)) word.pop_back();
      return word;
    });
  }
  app.parse(std::move(reversed));
}

// --help and --version; the exit status.
inline int TellAsked(const CLI::App& app, const CLI::Success& asked, std::string_view program) {
  std::ostringstream text;
  (void)app.exit(asked, text, text);
  Tell("{}", text.str());
  return EndTold(program);
}

}  // namespace rdfs
