#include "tools/rdinfo/local.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/crypto.h>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "transport/base/fd.h"
#include "transport/verbs/devices.h"

namespace rdfs::rdinfo {
namespace {

using transport::verbs::DeviceInfo;
using transport::verbs::PortInfo;

// Below this a lane of verbs has to make do with small buffers (server and client alike).
constexpr std::uint64_t kComfortableMemlock = 256ULL << 20U;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string FirstLine(const std::string& path) {
  const std::string text = ReadFile(path);
  return text.substr(0, text.find('\n'));
}

Section Kernel() {
  Section section{"system", {}};
  utsname name{};
  if (uname(&name) == 0) {
    section.facts.push_back({"kernel", fmt::format("{} {}", name.sysname, name.release), true, ""});
    section.facts.push_back({"host", name.nodename, true, ""});
  }
  section.facts.push_back({"rdfs", RDFS_VERSION, true, ""});
  section.facts.push_back({"OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING), true, ""});
  section.facts.push_back({"libsodium", sodium_version_string(), true, ""});
  return section;
}

Fact FuseDevice() {
  const Fd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (device.valid()) return {"/dev/fuse", "there, and may be opened", true, ""};
  if (errno == ENOENT) {
    return {"/dev/fuse", "not there", false,
            "as root: modprobe fuse (in a container: start it with --device /dev/fuse)"};
  }
  return {"/dev/fuse", std::strerror(errno), false,
          "as root: chmod 666 /dev/fuse (the package fuse3 does it at boot)"};
}

Fact Fusermount() {
  for (const char* path :
       {"/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"}) {
    if (access(path, X_OK) == 0) return {"fusermount3", path, true, ""};
  }
  return {"fusermount3", "not there", geteuid() == 0, "install the package fuse3"};
}

Section Fuse() {
  Section section{"FUSE", {FuseDevice(), Fusermount()}};
  const std::string pages = FirstLine("/proc/sys/fs/fuse/max_pages_limit");
  if (!pages.empty()) {
    section.facts.push_back({"largest request", pages + " pages", true, ""});
  }
  const bool others = ReadFile("/etc/fuse.conf").find("\nuser_allow_other") != std::string::npos;
  section.facts.push_back({"user_allow_other", others ? "set" : "not set", true, ""});
  return section;
}

Fact Memlock() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (geteuid() == 0) return {"memlock", "no limit for root", true, ""};
  if (limit.rlim_cur == RLIM_INFINITY) return {"memlock", "unlimited", true, ""};
  const std::string value = fmt::format("{} KiB", limit.rlim_cur >> 10U);
  if (limit.rlim_cur >= kComfortableMemlock) return {"memlock", value, true, ""};
  return {"memlock", value + ": RDMA works, with small buffers", false,
          transport::verbs::MemlockRemedy()};
}

void DescribePort(const PortInfo& port, const std::string& device, std::vector<Fact>& facts) {
  const std::string name = fmt::format("{} port {}", device, port.number);
  facts.push_back({name,
                   fmt::format("{}, {}, MTU {} of {}", port.state, port.link_layer,
                               port.active_mtu_bytes, port.max_mtu_bytes),
                   port.active(),
                   port.active()
                       ? ""
                       : "bring the link up: ip link set INTERFACE up; check the cable and, "
                         "for InfiniBand, that a subnet manager runs"});
  for (const auto& gid : port.gids) {
    std::string value = gid.gid;
    if (!gid.type.empty()) value += ", " + gid.type;
    if (!gid.interface.empty()) value += ", " + gid.interface;
    facts.push_back({fmt::format("{} GID {}", name, gid.index), value, true, ""});
  }
}

Section Rdma() {
  Section section{"RDMA", {}};
  const auto devices = transport::verbs::ListDevices();
  if (!devices.ok()) {
    section.facts.push_back({"devices", "none", false, devices.status().message()});
  } else if (devices->empty()) {
    section.facts.push_back(
        {"devices", "none", false,
         "there is no RDMA device; on plain Ethernet, as root: rdma link add rxe0 type rxe netdev "
         "INTERFACE (for trying; TCP is faster there)"});
  } else {
    for (const DeviceInfo& device : *devices) {
      if (!device.error.empty()) {
        section.facts.push_back({device.name, "cannot be opened", false, device.error});
        continue;
      }
      section.facts.push_back(
          {device.name,
           fmt::format("{}, firmware {}, {} queue pairs, {} READs in flight", device.transport,
                       device.firmware.empty() ? "-" : device.firmware, device.max_queue_pairs,
                       device.max_reads_as_initiator),
           true, ""});
      for (const PortInfo& port : device.ports) DescribePort(port, device.name, section.facts);
    }
  }
  section.facts.push_back(Memlock());
  return section;
}

}  // namespace

std::string FindField(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = line.substr(0, colon);
    while (!name.empty() && (name.back() == ' ' || name.back() == '\t')) name.remove_suffix(1);
    if (name != key) continue;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
      value.remove_prefix(1);
    return std::string(value);
  }
  return "";
}

std::vector<Section> DescribeMachine() {
  const std::string model = FindField(ReadFile("/proc/cpuinfo"), "model name");
  const std::string memory = FindField(ReadFile("/proc/meminfo"), "MemTotal");
  Section system = Kernel();
  if (!model.empty()) system.facts.push_back({"processor", model, true, ""});
  if (!memory.empty()) system.facts.push_back({"memory", memory, true, ""});
  return {std::move(system), Fuse(), Rdma()};
}

}  // namespace rdfs::rdinfo
