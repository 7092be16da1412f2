// Extended attributes. user.*, system.posix_acl_* and what else the server's kernel allows.
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "server/inode/open_keep.h"
#include "server/ops/acl_ids.h"
#include "server/ops/ops.h"

namespace rdfs::server {
namespace {

// trusted.* and security.* ask for capabilities that setfsuid(2) leaves with a root server: there
// the gate is ours. Elsewhere the kernel decides.
bool Hidden(const Call& call, std::string_view name) {
  return call.core().options.can_switch_ids && !call.worker.identity.is_root() &&
         name.starts_with("trusted.");
}
bool MayNotChange(const Call& call, std::string_view name) {
  return call.core().options.can_switch_ids && !call.worker.identity.is_root() &&
         (name.starts_with("trusted.") || name.starts_with("security."));
}

struct Named {
  InodeRef ref;
  std::string name;
  std::string path;  // through /proc: reaches FIFOs and unreadable files without opening them
};

// Reads handle and name; a name with a NUL fails the body.
Named ReadNamed(Call& call) {
  Named named;
  const fs::Handle handle = fs::ReadHandle(call.body);
  named.name = NameFrom(call.body.ReadSized16(fs::kMaxXattrNameBytes));
  if (named.name.empty() || named.name.find('\0') != named.name.npos) call.body.Fail();
  if (!call.body.ok()) return named;
  named.ref = call.Find(handle);
  if (named.ref.ok()) named.path = ProcFd::Path(named.ref.fd());
  return named;
}

// Names that the caller may know of: a list of strings, each ended by a NUL.
std::vector<std::byte> Visible(const Call& call, ByteSpan list) {
  std::vector<std::byte> out;
  std::string_view rest = AsText(list);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (Hidden(call, name)) continue;
    const ByteSpan bytes = AsBytes(name);
    out.insert(out.end(), bytes.begin(), bytes.end());
    out.push_back(std::byte{0});
  }
  return out;
}

// `value` as the size that was asked for allows.
Outcome AnswerSized(Call& call, ByteSpan value, std::uint32_t asked) {
  if (asked != 0 && value.size() > asked) return Outcome::Errno(ERANGE);
  fs::GetXattrReply reply;
  reply.size = static_cast<std::uint32_t>(value.size());
  call.out.Write(reply);
  call.out.WriteSized32(asked == 0 ? ByteSpan() : value);
  return Outcome::Ok();
}

void AfterChange(Call& call, const Named& named) {
  named.ref.inode->Changed();
  struct statx stat {};
  if (!IsPosixAcl(named.name) || StatFd(named.ref.fd(), stat) != 0) return;
  KeepWhatWouldBeLost(call.core().keeper, call.session.inodes(), named.ref.inode, stat);
}

}  // namespace

Outcome OpSetXattr(Call& call) {
  const auto request = call.body.Read<fs::SetXattrRequest>();
  const Named named = ReadNamed(call);
  const ByteSpan value = call.body.ReadSized32(fs::kMaxXattrValueBytes);
  if (!call.Decoded()) return Outcome::Malformed();
  if ((request.flags & ~std::uint32_t{XATTR_CREATE | XATTR_REPLACE}) != 0) {
    return Outcome::Errno(EINVAL);
  }
  if (!named.ref.ok()) return Outcome::Errno(named.ref.error);
  if (MayNotChange(call, named.name)) return Outcome::Errno(EPERM);
  std::vector<std::byte> copy(value.begin(), value.end());
  if (IsPosixAcl(named.name) && call.session.ids().maps_values()) {
    const IdMap& ids = call.session.ids();
    MapAclIds(
        copy, [&ids](std::uint32_t id) { return ids.ToServerUid(id); },
        [&ids](std::uint32_t id) { return ids.ToServerGid(id); });
  }
  if (::setxattr(named.path.c_str(), named.name.c_str(), copy.data(), copy.size(),
                 static_cast<int>(std::uint32_t{request.flags})) != 0) {
    return Outcome::Errno(errno);
  }
  AfterChange(call, named);
  return Outcome::Ok();
}

Outcome OpGetXattr(Call& call) {
  const auto request = call.body.Read<fs::GetXattrRequest>();
  const Named named = ReadNamed(call);
  if (!call.Decoded()) return Outcome::Malformed();
  if (!named.ref.ok()) return Outcome::Errno(named.ref.error);
  if (Hidden(call, named.name)) return Outcome::Errno(ENODATA);
  std::vector<std::byte> value(fs::kMaxXattrValueBytes);
  const ssize_t size =
      ::getxattr(named.path.c_str(), named.name.c_str(), value.data(), value.size());
  if (size < 0) return Outcome::Errno(errno);
  value.resize(static_cast<std::size_t>(size));
  if (IsPosixAcl(named.name) && call.session.ids().maps_values()) {
    const IdMap& ids = call.session.ids();
    MapAclIds(
        value, [&ids](std::uint32_t id) { return ids.ToClientUid(id); },
        [&ids](std::uint32_t id) { return ids.ToClientGid(id); });
  }
  return AnswerSized(call, value, request.size);
}

Outcome OpListXattr(Call& call) {
  const auto request = call.body.Read<fs::GetXattrRequest>();
  const fs::Handle handle = fs::ReadHandle(call.body);
  if (!call.Decoded()) return Outcome::Malformed();
  const InodeRef ref = call.Find(handle);
  if (!ref.ok()) return Outcome::Errno(ref.error);
  std::vector<char> list(fs::kMaxXattrValueBytes);
  const ssize_t size = ::listxattr(ProcFd::Path(ref.fd()).c_str(), list.data(), list.size());
  if (size < 0) return Outcome::Errno(errno);
  const auto visible = Visible(call, AsBytes({list.data(), static_cast<std::size_t>(size)}));
  return AnswerSized(call, visible, request.size);
}

Outcome OpRemoveXattr(Call& call) {
  const Named named = ReadNamed(call);
  if (!call.Decoded()) return Outcome::Malformed();
  if (!named.ref.ok()) return Outcome::Errno(named.ref.error);
  if (MayNotChange(call, named.name)) return Outcome::Errno(EPERM);
  if (::removexattr(named.path.c_str(), named.name.c_str()) != 0) return Outcome::Errno(errno);
  AfterChange(call, named);
  return Outcome::Ok();
}

}  // namespace rdfs::server
