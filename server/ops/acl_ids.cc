#include "server/ops/acl_ids.h"

#include <cstring>

namespace rdfs::server {
namespace {

struct AclEntry {
  Le16 tag, permissions;
  Le32 id;
};
constexpr std::size_t kHeaderBytes = 4;
constexpr std::uint16_t kUser = 0x02, kGroup = 0x08;

}  // namespace

bool IsPosixAcl(std::string_view xattr_name) {
  return xattr_name == "system.posix_acl_access" || xattr_name == "system.posix_acl_default";
}

void MapAclIds(MutableByteSpan value, const std::function<std::uint32_t(std::uint32_t)>& uid,
               const std::function<std::uint32_t(std::uint32_t)>& gid) {
  if (value.size() < kHeaderBytes || (value.size() - kHeaderBytes) % sizeof(AclEntry) != 0) return;
  for (std::size_t at = kHeaderBytes; at < value.size(); at += sizeof(AclEntry)) {
    AclEntry entry;
    std::memcpy(static_cast<void*>(&entry), value.data() + at, sizeof(entry));
    if (entry.tag == kUser) entry.id = uid(entry.id);
    if (entry.tag == kGroup) entry.id = gid(entry.id);
    std::memcpy(value.data() + at, static_cast<const void*>(&entry), sizeof(entry));
  }
}

}  // namespace rdfs::server
