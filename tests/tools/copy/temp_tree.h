// A directory of the test's own, removed at its end with all that was made in it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/tools/content_of.h"
#include "tools/copy/file/beneath.h"

namespace rdfs::copy {

class TempTree {
 public:
  TempTree() : path_(std::filesystem::temp_directory_path().string() + "/rdfs-copy-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "cannot make " << path_;
  }
  ~TempTree() {
    std::vector<std::string> gone;
    (void)RemoveTree(*Here(), path_, {}, gone);  // also what lies beyond PATH_MAX
  }
  TempTree(const TempTree&) = delete;
  TempTree& operator=(const TempTree&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name, std::ios::binary) << text;
  }
  void MakeDirectory(const std::string& name) const {
    std::filesystem::create_directories(*this / name);
  }
  [[nodiscard]] std::string Read(const std::string& name) const { return ContentOf(*this / name); }
  [[nodiscard]] struct stat Stat(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(lstat((*this / name).c_str(), &info), 0) << name;
    return info;
  }
  [[nodiscard]] bool Has(const std::string& name) const {
    struct stat info {};
    return lstat((*this / name).c_str(), &info) == 0;
  }
  [[nodiscard]] std::size_t Entries(const std::string& name = ".") const {
    const std::filesystem::directory_iterator all(*this / name);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

 private:
  std::string path_;
};

}  // namespace rdfs::copy
