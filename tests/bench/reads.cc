// reads SOURCE OPTIONS PATH random|sequential DEPTH SECONDS: reads of a file by librdfs, and how
// fast.
//
// random: 4 KiB at random places, DEPTH of them under way, reads a second. sequential: 1 MiB after
// the other from the start, DEPTH under way, until the end and once more until the time is over;
// bytes a second. Prints one number.
#include <fcntl.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <rdfs.hpp>
#include <string>

namespace {

struct Reads {
  const rdfs::Queue& queue;
  const rdfs::File& file;
  const rdfs::Buffer& buffer;
  std::uint64_t size;
  std::size_t piece;
  bool random;
  std::mt19937_64 places{1};
  std::uint64_t next = 0;

  bool Begin(std::size_t slot) {
    const std::uint64_t pieces = size / piece;
    const std::uint64_t at = (random ? places() : next++) % pieces;
    return file.SubmitRead(buffer, slot * piece, piece, at * piece,
                           reinterpret_cast<void*>(slot)) == 0;
  }
};

double Run(Reads& reads, std::size_t depth, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration<double>(seconds);
  std::uint64_t done = 0;
  std::size_t under_way = 0;
  for (; under_way < depth; ++under_way) {
    if (!reads.Begin(under_way)) return -1;
  }
  bool more = true;
  while (under_way > 0) {
    rdfs_completion ended[64];
    const int count = reads.queue.Poll(ended, 64, -1);
    if (count < 0) return -1;
    more = more && Clock::now() < end;
    for (int i = 0; i < count; ++i, --under_way) {
      if (ended[i].result != static_cast<std::int64_t>(reads.piece)) return -1;
      ++done;
      if (!more) continue;
      if (!reads.Begin(reinterpret_cast<std::size_t>(ended[i].user))) return -1;
      ++under_way;
    }
  }
  return static_cast<double>(done) / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  rdfs_error error{};
  rdfs::Export served;
  rdfs::Queue queue;
  rdfs::File file;
  if (rdfs::Export::Connect(argv[1], argv[2], served, &error) != 0 ||
      rdfs::Queue::Open(served, queue, &error) != 0) {
    std::fprintf(stderr, "reads: %s\n", error.sentence);
    return 1;
  }
  const bool random = std::string(argv[4]) == "random";
  const std::size_t piece = random ? 4096 : 1 << 20;
  const auto depth = static_cast<std::size_t>(std::atoi(argv[5]));
  const rdfs::Buffer buffer = queue.Allocate(depth * piece);
  rdfs_attributes attributes{};
  if (queue.OpenFile(argv[3], O_RDONLY, 0, file) != 0 || buffer == nullptr ||
      file.Stat(attributes) != 0) {
    std::fprintf(stderr, "reads: %s\n", queue.sentence());
    return 1;
  }
  Reads reads{queue, file, buffer, attributes.size, piece, random};
  const double rate = Run(reads, depth, std::atof(argv[6]));
  if (rate < 0) return 1;
  std::printf("%.1f\n", random ? rate : rate * static_cast<double>(piece));
  return 0;
}
