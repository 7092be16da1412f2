// What is kept of open files, on its way from one supervisor to the next: when rdfsd is restarted
// or upgraded by systemd, that holds it (server/supervisor/service_manager.h). Without systemd it
// ends with the supervisor.
//
// The packets of supervisor_packet.h wait in sockets that nobody reads meanwhile, some hundreds in
// each, and systemd is given the sockets: it compares each descriptor that it is given with all
// that it has.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/supervisor/supervisor_packet.h"
#include "transport/base/fd.h"
#include "transport/base/status.h"

namespace rdfs::server {

// A descriptor that is kept, and what the worker says of it.
struct KeptRecord {
  std::vector<std::byte> state;
  Fd fd;
};
using KeptRecords = std::map<std::string, KeptRecord>;  // by key

// Gives duplicates of them all to the service manager, and waits until it has them, some seconds at
// most. Nothing without a manager. Errors: kErrno, kDeadlineExceeded; then some may be with it and
// some not.
Status StoreKept(const KeptRecords& kept);

// What an earlier supervisor stored: kRecord packets. The manager has none of it then. Before the
// first thread.
std::vector<Packet> TakeStored();

}  // namespace rdfs::server
