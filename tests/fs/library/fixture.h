// A real rdfsd, an export of it over each transport, and one queue. In tests/rdma it is verbs
// that they go over.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fs/library/rdfs.h"
#include "tests/fs/client/rdfsd.h"
#include "tests/transport/kinds.h"

namespace rdfs::fs::library {

inline std::string RandomText(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

inline std::vector<const char*> Transports() {
  if (transport::TestDevice() != nullptr) return {"verbs"};
  return {"shm", "tcp"};
}

class Library : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Connect(&export_);
    rdfs_error error{};
    ASSERT_EQ(rdfs_queue_open(export_, &queue_, &error), 0) << error.sentence;
  }
  void TearDown() override {
    if (queue_ != nullptr) rdfs_queue_close(queue_);
    EXPECT_EQ(rdfs_disconnect(export_), 0);
  }
  [[nodiscard]] std::string Source() const {
    return "rdfs://" + transport::TestAddress() + ":" + std::to_string(server_.port()) + "/live";
  }
  void Connect(rdfs_export** out) const {
    rdfs_error error{};
    const std::string options = std::string("deadline=20,require=") + GetParam();
    ASSERT_EQ(rdfs_connect(Source().c_str(), options.c_str(), 0, out, &error), 0) << error.sentence;
  }
  [[nodiscard]] std::filesystem::path Path(const std::string& name) const {
    return server_.root() / name;
  }
  void Put(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
  }
  [[nodiscard]] std::string Content(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  rdfs_file* Open(const std::string& path, int flags, std::uint32_t mode = 0644) {
    rdfs_file* file = nullptr;
    EXPECT_EQ(rdfs_open(queue_, path.c_str(), flags, mode, &file), 0) << rdfs_sentence(queue_);
    return file;
  }

  client::Rdfsd server_;
  rdfs_export* export_ = nullptr;
  rdfs_queue* queue_ = nullptr;
};

inline std::string NameOf(const testing::TestParamInfo<const char*>& parameter) {
  return parameter.param;
}

}  // namespace rdfs::fs::library
