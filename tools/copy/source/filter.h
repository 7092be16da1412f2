// --exclude, --include and --files-from: which paths of a SRC take part.
//
// Used by one thread, but for WouldTake; no I/O.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tools/copy/source/scanner.h"

namespace rdfs::copy {

// Patterns in the order they were given; the first that matches decides, and what none matches
// takes part. A pattern with a '/' in it (not only at its end) means the path from SRC on, one
// without any name at any depth; a '/' at its end means directories only. '*' and '?' stop at '/',
// unless "**" is in the pattern; [a-z] and \ as in the shell.
class Rules final : public Filter {
 public:
  void Add(bool include, const std::string& pattern);
  // As they were added, each behind a '+' (include) or '-': for an rdcp on another machine.
  [[nodiscard]] const std::vector<std::string>& given() const { return given_; }
  [[nodiscard]] bool empty() const { return rules_.empty(); }
  [[nodiscard]] bool Takes(std::string_view path, bool is_directory) override {
    return MayGo(path, is_directory);
  }
  [[nodiscard]] bool WouldTake(std::string_view path, bool is_directory) const override {
    return MayGo(path, is_directory);
  }
  [[nodiscard]] bool MayGo(std::string_view path, bool is_directory) const override;

 private:
  struct Rule {
    bool include;
    bool whole_path, directories_only;
    int flags;  // fnmatch(3)
    std::string pattern;
  };
  std::vector<Rule> rules_;
  std::vector<std::string> given_;
};

// The listed paths, what is beneath them, and the directories on the way.
class Listed final : public Filter {
 public:
  // `next`: asked about what is listed; may be null.
  explicit Listed(Filter* next) : next_(next) {}
  // One path from SRC on; "./", "//" and a '/' at either end mean nothing. Fails for "..".
  Status Add(std::string_view path);
  [[nodiscard]] bool Takes(std::string_view path, bool is_directory) override;
  [[nodiscard]] bool WouldTake(std::string_view path, bool is_directory) const override;
  // What is beneath a listed path, but not what is listed itself.
  [[nodiscard]] bool MayGo(std::string_view path, bool is_directory) const override;
  // Those that were never asked about: they are not there.
  [[nodiscard]] std::vector<std::string> Missing() const;
  // What is said of those.
  static Status IsMissing() { return {Code::kNotFound, "it is listed, and not there"}; }
  // As they were added, but for what means nothing: for an rdcp on another machine.
  [[nodiscard]] std::vector<std::string> paths() const;

 private:
  // What is listed of it and what it is in; nothing.
  [[nodiscard]] std::optional<std::string> Listing(std::string_view path) const;

  Filter* const next_;
  bool all_ = false;
  std::unordered_map<std::string, bool> listed_;  // and whether it was met
  std::unordered_set<std::string> on_the_way_;
};

// A filter for a second thread, beside the one that uses it: what would be taken.
class Beside final : public Filter {
 public:
  // `filter` outlives this.
  explicit Beside(const Filter& filter) : filter_(filter) {}
  [[nodiscard]] bool Takes(std::string_view path, bool is_directory) override {
    return filter_.WouldTake(path, is_directory);
  }
  [[nodiscard]] bool WouldTake(std::string_view path, bool is_directory) const override {
    return filter_.WouldTake(path, is_directory);
  }
  [[nodiscard]] bool MayGo(std::string_view path, bool is_directory) const override {
    return filter_.MayGo(path, is_directory);
  }

 private:
  const Filter& filter_;
};

}  // namespace rdfs::copy
