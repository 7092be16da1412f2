#include "server/inode/open_file.h"

#include <xxhash.h>

namespace rdfs::server {

FileId FileIdOf(const Inode& inode) {
  return {.device = inode.key.device,
          .inode = inode.key.inode,
          .generation = XXH3_64bits(inode.native.bytes.data(), inode.native.size)};
}

}  // namespace rdfs::server
