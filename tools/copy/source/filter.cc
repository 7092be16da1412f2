#include "tools/copy/source/filter.h"

#include <fnmatch.h>

#include <algorithm>

#include "tools/copy/file/names.h"

namespace rdfs::copy {

void Rules::Add(bool include, const std::string& pattern) {
  given_.push_back((include ? '+' : '-') + pattern);
  Rule rule{include, false, false, 0, pattern};
  if (rule.pattern.size() > 1 && rule.pattern.ends_with('/')) {
    rule.directories_only = true;
    rule.pattern.pop_back();
  }
  rule.whole_path = rule.pattern.find('/') != std::string::npos;
  if (rule.pattern.starts_with('/')) rule.pattern.erase(0, 1);
  rule.flags = rule.pattern.find("**") == std::string::npos ? FNM_PATHNAME : 0;
  rules_.push_back(std::move(rule));
}

bool Rules::MayGo(std::string_view path, bool is_directory) const {
  const std::string whole(path);
  const char* name = whole.c_str() + (whole.size() - NameOf(path).size());
  for (const Rule& rule : rules_) {
    if (rule.directories_only && !is_directory) continue;
    const char* subject = rule.whole_path ? whole.c_str() : name;
    if (fnmatch(rule.pattern.c_str(), subject, rule.flags) == 0) return rule.include;
  }
  return true;
}

Status Listed::Add(std::string_view path) {
  std::string clean;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (name.empty() || name == ".") continue;
    RDFS_RETURN_IF_ERROR(CheckName(name));
    if (!clean.empty()) on_the_way_.insert(clean);
    clean = Joined(clean, name);
  }
  if (clean.empty()) all_ = true;
  if (!clean.empty()) listed_.emplace(std::move(clean), false);
  return {};
}

std::optional<std::string> Listed::Listing(std::string_view path) const {
  for (std::string_view at = path; !at.empty(); at = FolderOf(at)) {
    std::string whole(at);
    if (listed_.contains(whole)) return whole;
  }
  return std::nullopt;
}

bool Listed::Takes(std::string_view path, bool is_directory) {
  // Noted, so that what is listed and not there can be told.
  if (const auto listing = Listing(path)) listed_[*listing] = true;
  return WouldTake(path, is_directory);
}

bool Listed::WouldTake(std::string_view path, bool is_directory) const {
  const bool listed = all_ || Listing(path);
  if (!listed && !(is_directory && on_the_way_.contains(std::string(path)))) return false;
  return !listed || next_ == nullptr || next_->WouldTake(path, is_directory);
}

bool Listed::MayGo(std::string_view path, bool is_directory) const {
  const std::string whole(path);
  if (listed_.contains(whole) || on_the_way_.contains(whole)) return false;
  bool beneath = all_;
  for (std::string_view at = FolderOf(path); !beneath && !at.empty(); at = FolderOf(at)) {
    beneath = listed_.contains(std::string(at));
  }
  return beneath && (next_ == nullptr || next_->MayGo(path, is_directory));
}

std::vector<std::string> Listed::paths() const {
  std::vector<std::string> out;
  for (const auto& [path, met] : listed_) out.push_back(path);
  if (all_) out.emplace_back(".");
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> Listed::Missing() const {
  std::vector<std::string> out;
  for (const auto& [path, met] : listed_) {
    if (!met) out.push_back(path);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace rdfs::copy
