#include "tests/e2e/compare.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace rdfs::e2e {
namespace {

std::string Root(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

std::vector<std::string> Run(const std::string& root,
                             const std::function<void(Transcript&)>& calls) {
  std::string directory = root + "/case-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return {"mkdtemp failed in " + root};
  std::vector<std::string> lines;
  {
    Transcript transcript(directory);
    calls(transcript);
    lines = transcript.lines();
  }
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  if (error) lines.push_back("remove_all: " + error.message());
  return lines;
}

}  // namespace

std::string MountRoot() { return Root("RDFS_E2E_MOUNT"); }

void Compare(const std::function<void(Transcript&)>& calls) {
  const std::string local = Root("RDFS_E2E_LOCAL");
  const std::string mount = Root("RDFS_E2E_MOUNT");
  ASSERT_FALSE(local.empty() || mount.empty())
      << "run this under tests/e2e/with-mount, which sets RDFS_E2E_LOCAL and RDFS_E2E_MOUNT";
  const auto expected = Run(local, calls);
  const auto seen = Run(mount, calls);
  EXPECT_FALSE(expected.empty());
  ASSERT_EQ(expected.size(), seen.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i], seen[i]) << "line " << i + 1 << " of the transcript";
  }
}

}  // namespace rdfs::e2e
