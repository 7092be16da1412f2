// Which transports a suite goes over, and where its servers listen: verbs at the device's address
// in the test bed (tests/rdma/run names it), else what every machine has, on loopback. With
// RDFS_TEST_VERBS=1 (rdfs_add_rdma_suite sets it) never anything else than verbs.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace rdfs::transport {

inline const char* TestDevice() { return std::getenv("RDFS_RDMA_ADDRESS"); }

inline std::string TestAddress() {
  const char* const device = TestDevice();
  return device != nullptr ? device : "127.0.0.1";
}

inline std::vector<Kind> TestKinds() {
  if (TestDevice() != nullptr) return {Kind::kVerbs};
  if (std::getenv("RDFS_TEST_VERBS") != nullptr) {
    (void)std::fputs("RDFS_RDMA_ADDRESS is not set: run this through tests/rdma/run\n", stderr);
    std::abort();
  }
  return {Kind::kShm, Kind::kTcp};
}

inline std::string KindName(const testing::TestParamInfo<Kind>& info) {
  return std::string(Name(info.param));
}

}  // namespace rdfs::transport
