// rdtree: prints what is below a directory of an export, with sizes.
//
//   g++ -std=c++17 rdtree.cc -o rdtree $(pkg-config --cflags --libs rdfs)
//   ./rdtree rdfs://node/data key_file=/etc/rdfs/key path
#include <sys/stat.h>

#include <cstdio>
#include <rdfs.hpp>
#include <string>

namespace {

int Print(const rdfs::Queue& queue, const std::string& path) {
  rdfs::Listing listing;
  if (const int result = queue.List(path, listing); result != 0) return result;
  for (std::size_t i = 0; i < listing.size(); ++i) {
    const rdfs_attributes* attributes = listing.attributes(i);
    if (attributes == nullptr) continue;  // gone meanwhile
    const std::string name = path + "/" + listing.name(i);
    std::printf("%llu %s\n", static_cast<unsigned long long>(attributes->size), name.c_str());
    if (!S_ISDIR(attributes->mode)) continue;
    if (const int result = Print(queue, name); result != 0) return result;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: rdtree SOURCE OPTIONS PATH\n");
    return 2;
  }
  rdfs_error error{};
  rdfs::Export served;
  rdfs::Queue queue;
  if (rdfs::Export::Connect(argv[1], argv[2], served, &error) != 0 ||
      rdfs::Queue::Open(served, queue, &error) != 0) {
    std::fprintf(stderr, "rdtree: %s\n", error.sentence);
    return 1;
  }
  if (Print(queue, argv[3]) != 0) {
    std::fprintf(stderr, "rdtree: %s\n", queue.sentence());
    return 1;
  }
  return 0;
}
