#include "transport/verbs/devices.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>

#include "transport/verbs/errors.h"
#include "transport/verbs/objects.h"

namespace rdfs::transport::verbs {
namespace {

constexpr const char* kCmDevice = "/dev/infiniband/rdma_cm";

// ibv_mtu counts from 1 for 256 bytes, doubling.
unsigned MtuBytes(ibv_mtu mtu) { return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 0 : 128U << mtu; }

std::string StateName(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "init";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    default:
      return "unknown";
  }
}

std::string GidTypeName(const ibv_gid_entry& entry, bool iwarp) {
  if (iwarp) return "";
  switch (entry.gid_type) {
    case IBV_GID_TYPE_IB:
      return "InfiniBand";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    default:
      return "";
  }
}

std::vector<GidInfo> QueryGids(ibv_context* context, unsigned port, std::size_t table_size,
                               bool iwarp) {
  std::vector<ibv_gid_entry> table(table_size);
  const ssize_t count = ibv_query_gid_table(context, table.data(), table.size(), 0);
  std::vector<GidInfo> gids;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = table[static_cast<std::size_t>(i)];
    if (entry.port_num != port) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    std::array<char, IF_NAMESIZE> interface {};
    inet_ntop(AF_INET6, entry.gid.raw, text.data(), text.size());
    if (entry.ndev_ifindex != 0) if_indextoname(entry.ndev_ifindex, interface.data());
    gids.push_back({.index = entry.gid_index,
                    .gid = text.data(),
                    .type = GidTypeName(entry, iwarp),
                    .interface = interface.data()});
  }
  return gids;
}

PortInfo QueryPort(ibv_context* context, unsigned number, std::size_t gid_table_size, bool iwarp) {
  PortInfo port;
  port.number = number;
  port.state = "unknown";
  ibv_port_attr attr{};
  if (ibv_query_port(context, static_cast<std::uint8_t>(number), &attr) != 0) return port;
  port.state = StateName(attr.state);
  port.link_layer = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
  // iWARP devices leave it unspecified; they run over TCP, so Ethernet it is.
  if (iwarp) port.link_layer = "Ethernet";
  port.active_mtu_bytes = MtuBytes(attr.active_mtu);
  port.max_mtu_bytes = MtuBytes(attr.max_mtu);
  port.lid = attr.lid;
  port.max_message_bytes = attr.max_msg_sz;
  port.gids = QueryGids(context, number, gid_table_size, iwarp);
  return port;
}

DeviceInfo QueryDevice(ibv_device* device) {
  DeviceInfo info;
  info.name = ibv_get_device_name(device);
  const bool iwarp = device->transport_type == IBV_TRANSPORT_IWARP;
  info.transport = iwarp ? "iWARP" : "InfiniBand";
  info.guid = fmt::format("{:016x}", be64toh(ibv_get_device_guid(device)));
  const ContextPtr context(ibv_open_device(device));
  if (context == nullptr) {
    info.error = FromErrno("cannot open " + info.name).message();
    return info;
  }
  ibv_device_attr attr{};
  if (const int error = ibv_query_device(context.get(), &attr); error != 0) {
    info.error = FromReturned(error, "cannot query " + info.name).message();
    return info;
  }
  info.firmware = attr.fw_ver;
  info.vendor_id = attr.vendor_id;
  info.vendor_part_id = attr.vendor_part_id;
  info.max_queue_pairs = attr.max_qp;
  info.max_work_requests = attr.max_qp_wr;
  info.max_sges = attr.max_sge;
  info.max_completion_entries = attr.max_cqe;
  info.max_memory_regions = attr.max_mr;
  info.max_reads_as_target = attr.max_qp_rd_atom;
  info.max_reads_as_initiator = attr.max_qp_init_rd_atom;
  info.max_shared_receive_queues = attr.max_srq;
  info.max_region_bytes = attr.max_mr_size;
  info.memory_windows = (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0 ||
                        (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  // The table holds the GIDs of all ports; devices have at most a few hundred a port.
  const std::size_t gid_table_size = std::size_t{1024} * attr.phys_port_cnt;
  for (unsigned number = 1; number <= attr.phys_port_cnt; ++number) {
    info.ports.push_back(QueryPort(context.get(), number, gid_table_size, iwarp));
  }
  return info;
}

Viability ProbeConnectionManager() {
  if (access(kCmDevice, R_OK | W_OK) == 0) return {.viable = true, .reason = {}};
  if (errno == ENOENT) {
    return {.viable = false,
            .reason = fmt::format("{} is missing: load the kernel's RDMA connection manager with "
                                  "'modprobe rdma_ucm'",
                                  kCmDevice)};
  }
  return {.viable = false,
          .reason = fmt::format("no permission for {}: it should have mode 0666, which the package "
                                "rdma-core sees to",
                                kCmDevice)};
}

// The kernel's devices, whether a library here drives them or not. Source: sysfs(5).
std::string KernelDevices() {
  std::string names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", ignored)) {
    names += (names.empty() ? "" : ", ") + entry.path().filename().string();
  }
  return names;
}

}  // namespace

Result<std::vector<DeviceInfo>> ListDevices() {
  int count = 0;
  const DeviceListPtr list(ibv_get_device_list(&count));
  if (list == nullptr) {
    return Status(Code::kUnavailable, errno,
                  "this kernel has no RDMA support, or it is not loaded ('modprobe ib_uverbs')");
  }
  if (count == 0) {
    if (const std::string names = KernelDevices(); !names.empty()) {
      return Status(Code::kNotFound,
                    fmt::format("the kernel has RDMA devices ({}), and nothing here drives them: "
                                "install the package ibverbs-providers",
                                names));
    }
  }
  std::vector<DeviceInfo> devices;
  for (ibv_device* device : std::span(list.get(), static_cast<std::size_t>(count))) {
    devices.push_back(QueryDevice(device));
  }
  return devices;
}

Viability ProbeDevices() {
  const Result<std::vector<DeviceInfo>> devices = ListDevices();
  if (!devices.ok()) return {.viable = false, .reason = devices.status().message()};
  if ((*devices).empty()) {
    return {.viable = false,
            .reason =
                "no RDMA device here; any network interface can be one in software: 'rdma link add "
                "siw0 type siw netdev INTERFACE' (iWARP) or 'rdma link add rxe0 type rxe netdev "
                "INTERFACE' (RoCE)"};
  }
  std::string down;
  for (const DeviceInfo& device : *devices) {
    if (!device.error.empty()) {
      down += (down.empty() ? "" : ", ") + device.error;
      continue;
    }
    for (const PortInfo& port : device.ports) {
      if (port.active()) return ProbeConnectionManager();
      down += fmt::format("{}{} port {} is {}", down.empty() ? "" : ", ", device.name, port.number,
                          port.state);
    }
  }
  return {.viable = false,
          .reason = "no RDMA port is active (" + down +
                    "); bring its network interface up ('ip link set INTERFACE up') and see "
                    "'rdma link'"};
}

}  // namespace rdfs::transport::verbs
