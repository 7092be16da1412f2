#include "tools/copy/destination/folded.h"

#include <gtest/gtest.h>
#include <strings.h>

#include <map>

namespace rdfs::copy {
namespace {

TEST(Folded, IsWhatLeadsToTheSame) {
  std::map<std::string, FileId> files{{"README", {1, 1}}, {"b", {1, 2}}, {"2", {1, 3}}};
  int looks = 0;
  const auto folding = [&](std::string name) -> std::optional<FileId> {
    ++looks;
    for (const auto& [each, id] : files) {
      if (strcasecmp(each.c_str(), name.c_str()) == 0) return id;
    }
    return std::nullopt;
  };
  const auto plain = [&](const std::string& name) -> std::optional<FileId> {
    ++looks;
    const auto at = files.find(name);
    return at == files.end() ? std::nullopt : std::optional(at->second);
  };
  const std::unordered_set<std::string> listed{"README", "b", "2"};
  const std::unordered_set<std::string> seen{"Readme", "B", "new"};
  EXPECT_TRUE(IsSpelledOtherwise("README", listed, seen, folding));
  EXPECT_TRUE(IsSpelledOtherwise("b", listed, seen, folding));
  EXPECT_FALSE(IsSpelledOtherwise("b", listed, {"Readme", "new"}, folding));
  EXPECT_FALSE(IsSpelledOtherwise("README", listed, {"README"}, folding));
  // Two links, and nothing is folded.
  files["new"] = {1, 2};
  looks = 0;
  EXPECT_FALSE(IsSpelledOtherwise("b", listed, seen, plain));
  EXPECT_FALSE(IsSpelledOtherwise("2", listed, seen, plain));
  EXPECT_EQ(looks, 1);
  // Replaced between one look and the next.
  const auto replaced = [&](const std::string& name) {
    if (name == "README" && files["README"].inode == 1) files["README"] = {1, 9};
    return folding(name);
  };
  EXPECT_TRUE(IsSpelledOtherwise("README", listed, {"Readme"}, replaced));
}

}  // namespace
}  // namespace rdfs::copy
