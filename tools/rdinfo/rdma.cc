// The RDMA part of what this machine can do: devices, their ports, GIDs and MTUs, pinned memory.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "tools/rdinfo/local.h"
#include "transport/base/memlock.h"
#include "transport/verbs/devices.h"

namespace rdfs::rdinfo {
namespace {

using transport::verbs::DeviceInfo;
using transport::verbs::PortInfo;

// Below this a lane of verbs has to make do with small buffers (server and client alike).
constexpr std::uint64_t kComfortableMemlock = 256ULL << 20U;
// And with less than this there is none at all (fs/fuse asks for as much before it mounts).
constexpr std::uint64_t kLeastMemlock = 2ULL << 20U;

Fact Memlock() {
  const std::uint64_t limit = MemlockLimit();
  if (limit == std::numeric_limits<std::uint64_t>::max()) return {"memlock", "unlimited", true, ""};
  const std::string value = fmt::format("{} KiB", limit >> 10U);
  if (limit >= kComfortableMemlock) return {"memlock", value, true, ""};
  return {"memlock",
          value + (limit < kLeastMemlock ? ": too little for RDMA"
                                         : ": RDMA works, with small buffers"),
          false, transport::verbs::MemlockRemedy(), Weight::kHinders};
}

// RoCE takes what the interface's MTU leaves, in steps of 256, 512, 1024, 2048 and 4096 bytes;
// iWARP runs over TCP, which cuts its own pieces.
bool IsRoce(const PortInfo& port) {
  return std::ranges::any_of(port.gids,
                             [](const auto& gid) { return gid.type.starts_with("RoCE"); });
}

// Beside the link-scoped one that every interface makes from its hardware address.
bool HasAddress(const PortInfo& port) {
  return std::ranges::any_of(port.gids,
                             [](const auto& gid) { return !gid.gid.starts_with("fe80"); });
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
                         "for InfiniBand, that a subnet manager runs",
                   Weight::kHinders, Role::kRdmaPort});
  if (port.active() && IsRoce(port) && port.active_mtu_bytes < port.max_mtu_bytes) {
    facts.back().remedy =
        "on every interface and switch of the way: an MTU of 4200 or more (ip link set INTERFACE "
        "mtu 9000), the same at both ends, so that RoCE can use 4096 bytes a packet";
    facts.back().weight = Weight::kNote;
  }
  if (port.active() && IsRoce(port) && !HasAddress(port)) {
    facts.push_back(
        {name + " address", "no GID with an IP address", false,
         "give the interface an address: as root, ip addr add ADDRESS/24 dev INTERFACE; "
         "mount by that address",
         Weight::kHinders});
  }
  for (const auto& gid : port.gids) {
    std::string value = gid.gid;
    if (!gid.type.empty()) value += ", " + gid.type;
    if (!gid.interface.empty()) value += ", " + gid.interface;
    facts.push_back({fmt::format("{} GID {}", name, gid.index), value, true, ""});
  }
}

}  // namespace

Section DescribeRdma() {
  Section section{"RDMA", {}};
  const auto devices = transport::verbs::ListDevices();
  if (!devices.ok()) {
    const bool lacks_library = devices.status().code() == Code::kNotFound;
    section.facts.push_back({"devices", lacks_library ? "not usable" : "none", false,
                             devices.status().message(),
                             lacks_library ? Weight::kHinders : Weight::kNote});
  } else if (devices->empty()) {
    section.facts.push_back(
        {"devices", "none", false,
         "there is no RDMA device; on plain Ethernet, as root: rdma link add rxe0 type rxe netdev "
         "INTERFACE (for trying; TCP is faster there)",
         Weight::kNote});
  } else {
    for (const DeviceInfo& device : *devices) {
      if (!device.error.empty()) {
        section.facts.push_back(
            {device.name, "cannot be opened", false, device.error, Weight::kHinders});
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

}  // namespace rdfs::rdinfo
