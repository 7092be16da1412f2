// The ids inside POSIX ACLs, which travel as extended attributes (acl(5); the kernel's
// posix_acl_xattr.h): a header of 4 bytes, then entries of tag, permissions and id. Pure.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "transport/base/bytes.h"

namespace rdfs::server {

[[nodiscard]] bool IsPosixAcl(std::string_view xattr_name);

// `value` with each user's and group's id mapped. What is not an ACL is left for the kernel to
// refuse.
void MapAclIds(MutableByteSpan value, const std::function<std::uint32_t(std::uint32_t)>& uid,
               const std::function<std::uint32_t(std::uint32_t)>& gid);

}  // namespace rdfs::server
