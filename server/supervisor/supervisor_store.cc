#include "server/supervisor/supervisor_store.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "server/supervisor/service_manager.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"

namespace rdfs::server {
namespace {

// With the version of what is in it.
constexpr std::string_view kName = "rdfsd-kept-1";
constexpr std::chrono::seconds kPatience{5};

// A socket that holds what is sent, of which `in` is the other end.
Result<Fd> NewQueue(Fd& in) {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return Status::FromErrno(errno, "socketpair");
  }
  in.Reset(pair[0]);
  return Fd(pair[1]);
}

// kDeadlineExceeded when the queue is full.
Status Put(int queue, const std::string& key, const KeptRecord& record) {
  return SendPacket(queue, PacketType::kRecord, AsBytes(key), record.state, record.fd.get(),
                    BootClock::now());
}

// As many as there is room for; why no more.
Status Fill(const KeptRecords& kept, std::vector<Fd>& queues) {
  Fd in;
  for (const auto& [key, record] : kept) {
    if (in.valid()) {
      const Status put = Put(in.get(), key, record);
      if (put.ok()) continue;
      if (put.code() != Code::kDeadlineExceeded) return put;
    }
    RDFS_ASSIGN_OR_RETURN(Fd queue, NewQueue(in));
    queues.push_back(std::move(queue));
    RDFS_RETURN_IF_ERROR(Put(in.get(), key, record));
  }
  return {};
}

Status GiveToManager(const std::vector<Fd>& queues) {
  const Deadline deadline = DeadlineAfter(kPatience);
  std::vector<int> numbers(queues.size());
  std::ranges::transform(queues, numbers.begin(), &Fd::get);
  // It would take a socket without another end for one that is used up, if it looked.
  const std::string lines = "FDSTORE=1\nFDNAME=" + std::string(kName) + "\nFDPOLL=0";
  for (std::span<const int> left = numbers; !left.empty();) {
    const auto part = left.first(std::min(left.size(), kMostPassed));
    RDFS_RETURN_IF_ERROR(NotifyServiceManager(lines, part, deadline));
    left = left.subspan(part.size());
  }
  return WaitForServiceManager(deadline);
}

void TakeFrom(int queue, std::vector<Packet>& out) {
  while (true) {
    Result<std::optional<Packet>> packet = ReceivePacket(queue);
    if (!packet.ok() && packet.status().code() == Code::kDisconnected) return;
    if (!packet.ok()) {
      LogWarn("something that an earlier rdfsd kept of open files is lost: {}",
              packet.status().message());
      if (packet.status().code() == Code::kErrno) return;
      continue;
    }
    if (!packet->has_value()) return;
    if ((*packet)->type == PacketType::kRecord) out.push_back(std::move(**packet));
  }
}

}  // namespace

Status StoreKept(const KeptRecords& kept) {
  if (kept.empty() || !HasServiceManager()) return {};
  std::vector<Fd> queues;
  const Status filled = Fill(kept, queues);
  RDFS_RETURN_IF_ERROR(GiveToManager(queues));
  return filled;
}

std::vector<Packet> TakeStored() {
  std::vector<Packet> out;
  const std::vector<Fd> queues = TakePassedDescriptors(kName);
  for (const Fd& queue : queues) TakeFrom(queue.get(), out);
  if (queues.empty()) return out;
  const Status removed = NotifyServiceManager("FDSTOREREMOVE=1\nFDNAME=" + std::string(kName), {},
                                              DeadlineAfter(kPatience));
  if (!removed.ok()) LogDebug("systemd keeps empty sockets of ours: {}", removed.message());
  return out;
}

}  // namespace rdfs::server
