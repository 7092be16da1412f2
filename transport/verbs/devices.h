// What this machine's RDMA devices are and can do, as plain values: for rdinfo and for messages.
// Needs no privilege; every call asks the kernel anew. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/transport.h"

namespace rdfs::transport::verbs {

struct GidInfo {
  std::uint32_t index = 0;
  std::string gid;        // as an IPv6 address: "fe80::1", "::ffff:10.9.9.1"
  std::string type;       // "InfiniBand", "RoCE v1", "RoCE v2"; empty where it means nothing
  std::string interface;  // network interface, empty for InfiniBand
};

struct PortInfo {
  unsigned number = 0;
  std::string state;       // "active", "down", "init", "armed"
  std::string link_layer;  // "Ethernet", "InfiniBand"
  unsigned active_mtu_bytes = 0;
  unsigned max_mtu_bytes = 0;
  unsigned lid = 0;  // InfiniBand's address; 0 on Ethernet
  std::uint64_t max_message_bytes = 0;
  std::vector<GidInfo> gids;

  [[nodiscard]] bool active() const { return state == "active"; }
};

struct DeviceInfo {
  std::string name;       // "siw0", "mlx5_0"
  std::string transport;  // "iWARP", "InfiniBand" (RoCE devices, too: see the link layer)
  std::string firmware;
  std::string guid;
  std::string error;  // not empty: the device cannot be opened, and what follows is unknown
  unsigned vendor_id = 0;
  unsigned vendor_part_id = 0;
  // Limits (ibv_query_device(3)).
  int max_queue_pairs = 0;
  int max_work_requests = 0;  // of a queue
  int max_sges = 0;
  int max_completion_entries = 0;  // of a completion queue
  int max_memory_regions = 0;
  int max_reads_as_target = 0;     // READs under way on a queue pair, from the peer
  int max_reads_as_initiator = 0;  // and from us
  int max_shared_receive_queues = 0;
  std::uint64_t max_region_bytes = 0;
  bool memory_windows = false;
  std::vector<PortInfo> ports;
};

// kUnavailable when RDMA is not there at all, kNotFound when the kernel has devices that no library
// here drives (the message says what to do); an empty list is a machine with RDMA software and no
// device.
Result<std::vector<DeviceInfo>> ListDevices();

// Whether verbs can work here: a device with a port that is up, and the connection manager.
Viability ProbeDevices();

// What to do when memory cannot be locked: the limit in force and the exact line that lifts it.
std::string MemlockRemedy();

}  // namespace rdfs::transport::verbs
