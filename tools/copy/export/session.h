// ExportSession: what this run and the rdfsd of one export have with each other.
//
//     crew, scanner --> Do: a lane of the pool for one call --> rdfsd
//     keeper        --> lanes that nobody has, so that the server's recalls are answered
//
// Whoever calls has a lane to himself until he is answered: as many calls are under way as threads
// call, up to kMostLanes, which are opened when they are wanted. Calls end by kPatience at the
// latest, reconnecting included, but for one that waits for the disk of a server that is there
// (File::Sync); the first that does not is the last one (lost).
//
// Any thread. Owns the mount's thread and the keeper, which block all signals. Outlives its Files.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "fs/client/sync_client.h"
#include "tools/copy/command/operand.h"
#include "tools/copy/file/file.h"
#include "transport/transport.h"

namespace rdfs::copy {

struct ExportOptions {
  std::string key_file;  // empty: a server that asks for none
  std::optional<transport::Kind> require;
  bool plaintext = false;
  bool require_encryption = false;
};

class ExportSession {
 public:
  static constexpr std::chrono::seconds kPatience{30};
  static constexpr std::size_t kMostLanes = 16;

  // `operand`: of an export. `number`: unlike any other session's; see device().
  // `stop` is set when the server is lost, and outlives it. Blocks at most for kPatience. Errors:
  // one sentence each.
  static Result<std::unique_ptr<ExportSession>> Connect(const Operand& operand,
                                                        const ExportOptions& options,
                                                        std::uint16_t number,
                                                        std::atomic<bool>& stop);
  ~ExportSession();
  ExportSession(const ExportSession&) = delete;
  ExportSession& operator=(const ExportSession&) = delete;

  // The directory that is exported.
  [[nodiscard]] FilePtr root();
  // What it goes over, and why not over something better.
  [[nodiscard]] std::string Describe() const { return mount_->info().transport; }
  // The server did not answer in time: nothing more is asked of it.
  [[nodiscard]] bool lost() const { return lost_; }
  // The server refused a chown (EPERM).
  [[nodiscard]] bool kept_owner() const { return kept_owner_; }

  // ---- for its Files ----------------------------------------------------------------------------
  // A lane, and registered memory for what is read and written.
  struct Seat {
    Seat(std::unique_ptr<fs::client::Lane> lane, const fs::client::CallContext& caller)
        : client(std::move(lane), caller) {}
    fs::client::SyncClient client;
    fs::client::Buffer buffer;  // gone before its lane
  };
  // What `call(Seat&)` answers, a Result or a Status. It is called again where the server had no
  // room for it, and did nothing.
  template <typename Call>
  auto Do(Call call) -> decltype(call(std::declval<Seat&>())) {
    const Deadline deadline = DeadlineAfter(kPatience);
    for (;;) {
      auto seat = Take();
      if (!seat.ok()) return seat.status();
      auto answer = call(**seat);
      Judge(StatusOf(answer));  // before anybody else has the lane
      GiveBack(*std::move(seat));
      if (!ComesAgain(StatusOf(answer), deadline)) return answer;
    }
  }
  // Nobody waits for it.
  void Release(fs::client::OpenPtr open);
  // Its files' device number.
  [[nodiscard]] std::uint64_t device() const { return device_; }
  void NoteKeptOwner() { kept_owner_ = true; }
  // Whose files it makes for us, once that is known.
  static constexpr std::int64_t kUnknown = -1;
  std::atomic<std::int64_t>& maker() { return maker_; }
  // A client that does not come back is given up so long after it was last heard of.
  [[nodiscard]] std::chrono::milliseconds lease() const { return mount_->info().lease; }
  [[nodiscard]] const std::atomic<bool>& stop() const { return stop_; }

 private:
  using SeatPtr = std::unique_ptr<Seat>;
  ExportSession(std::unique_ptr<fs::client::Mount> mount, std::uint16_t number,
                std::atomic<bool>& stop);
  Result<SeatPtr> Take();
  Result<SeatPtr> Make();
  void GiveBack(SeatPtr seat);
  static const Status& StatusOf(const Status& status) { return status; }
  template <typename T>
  static Status StatusOf(const Result<T>& result) {
    return result.status();
  }
  void Judge(const Status& status);
  static bool ComesAgain(const Status& status, Deadline deadline);
  void Keep();

  const std::unique_ptr<fs::client::Mount> mount_;
  const std::uint64_t device_;
  std::atomic<bool>& stop_;
  std::atomic<bool> lost_{false}, kept_owner_{false};
  std::atomic<std::int64_t> maker_{kUnknown};
  std::mutex mutex_;  // guards what follows
  std::condition_variable given_back_, ending_;
  std::deque<SeatPtr> idle_;  // the latest used behind
  std::size_t made_ = 0;      // seats, and those that are being made
  std::size_t most_ = kMostLanes;
  bool ended_ = false;
  std::thread keeper_;
};

}  // namespace rdfs::copy
