// What libFuzzer calls, for every target; and before it begins, a walk along the seeds: each byte
// takes the values at which lengths, offsets and flags go wrong. Chance needs long for that where
// an input is made of many parts.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "transport/base/log.h"

namespace rdfs::fuzz {
namespace {

constexpr std::chrono::seconds kLongestWalk{3};
constexpr std::array kSteps = {std::byte{0xff}, std::byte{0x01}, std::byte{0x80}, std::byte{0x00},
                               std::byte{0x7f}};
// So that a walk that is cut short has been everywhere.
constexpr std::size_t kStride = 7919;

// Of the walk; libFuzzer saves its own.
struct Current {
  std::string path;
  Bytes input;
} current;

void Save(const std::string& path, ByteSpan bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void SaveCurrent() {
  if (current.path.empty()) return;
  Save(current.path, current.input);
  std::cerr << "the input was written to " << current.path << std::endl;
}

void Walk(const char* path) {
  current.path = path;
  __sanitizer_set_death_callback(SaveCurrent);
  const auto end = std::chrono::steady_clock::now() + kLongestWalk;
  const std::vector<Bytes> seeds = Seeds();
  std::size_t taken = 0;
  std::size_t longest = 0;
  for (const Bytes& seed : seeds) longest = std::max(longest, seed.size());
  for (std::size_t i = 0; i < kSteps.size() * longest; ++i) {
    const std::byte step = kSteps[i / longest];
    for (const Bytes& seed : seeds) {
      if (i % longest >= seed.size()) continue;
      if (std::chrono::steady_clock::now() >= end) break;
      current.input = seed;
      std::byte& byte = current.input[i % longest * kStride % seed.size()];
      if (byte == step) continue;
      byte = step;
      Run(current.input);
      ++taken;
    }
  }
  std::cerr << "walked " << taken << " steps along the seeds" << std::endl;
  current.path.clear();
}

int WriteSeeds(const std::string& folder) {
  int number = 0;
  for (const Bytes& seed : Seeds()) Save(folder + "/seed-" + std::to_string(number++), seed);
  return 0;
}

}  // namespace

void Require(bool holds, std::string_view what) {
  if (holds) return;
  std::cerr << "does not hold: " << what << std::endl;
  SaveCurrent();
  std::abort();
}

}  // namespace rdfs::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::string_view((*argv)[1]) == "--seeds") {
    _exit(rdfs::fuzz::WriteSeeds((*argv)[2]));
  }
  // What is refused is no news here.
  rdfs::SetLogLevel(rdfs::LogLevel::kOff);
  if (const char* const path = std::getenv("RDFS_FUZZ_WALK")) rdfs::fuzz::Walk(path);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rdfs::fuzz::Run(std::as_bytes(std::span(data, size)));
  return 0;
}
