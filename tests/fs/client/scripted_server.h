// ScriptedServer: a peer that speaks the protocol over real tcp connections (socket pairs), keeps
// records of mutating requests as a server must, and does what no correct server does when a test
// asks for it.
//
// It serves one file of memory (handle "file"), whose bytes are granted as extents. Each lane has a
// thread of its own. The knobs are for the test's thread, any time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "fs/client/client.h"

namespace rdfs::fs::client {

class ScriptedServer {
 public:
  static constexpr std::size_t kFileBytes = 1 << 20;
  static constexpr std::size_t kExtentBytes = 64 * 1024;
  static constexpr std::uint32_t kSlotBytes = 64 * 1024;
  static constexpr std::uint32_t kSlots = 2;

  ScriptedServer();
  ~ScriptedServer();
  [[nodiscard]] DialFunction Dialer();
  // From the next session on there is ssh's stream only, which carries one lane.
  void KeepToStream() { stream_only_ = true; }
  [[nodiscard]] int sessions() const { return sessions_; }

  struct Request {
    RequestHeader header;
    Opcode opcode;
    std::vector<std::byte> body;
  };
  struct Reply {
    WireError error = WireError::kOk;
    std::vector<std::byte> body{};
    std::vector<std::byte> extensions{};
    bool send = true;
    bool drop = false;                        // the connection, after sending
    bool stall = false;                       // nothing more of this lane is looked at
    std::optional<std::uint64_t> sequence{};  // instead of the request's
    int times = 1;                            // the same answer again
    std::vector<std::byte> instead{};         // raw bytes instead of an answer
    std::optional<std::uint64_t> epoch{};
    std::vector<std::byte> before{};  // goes first: a message that nobody asked for
  };
  // Looks at each answer before it goes. Runs on the lanes' threads, one at a time.
  using Hook = std::function<void(const Request&, Reply&)>;
  void SetHook(Hook hook);
  // Looks at each request before it is carried out; false: the connection drops instead.
  using Gate = std::function<bool(const Request&)>;
  void SetGate(Gate gate);
  // What the client gets as its end of each lane to come, made of the real one.
  using ClientEnd =
      std::function<std::unique_ptr<transport::Connection>(std::unique_ptr<transport::Connection>)>;
  void SetClientEnd(ClientEnd end);

  // Connections drop; unless `resumed`, the epoch is another and open files are forgotten.
  void Restart(bool resumed);
  void RestartFromGate(bool resumed);  // inside a Gate
  // And what was not synced is gone: the verifier is another.
  void CrashHost();
  // The session is over for a server that goes on: nothing was heard of its client for too long.
  void GiveUp();
  void DropAll();                                 // connections
  void Refuse(bool refuse) { refuse_ = refuse; }  // dialling fails, and lanes
  [[nodiscard]] int refused() const { return refused_; }

  std::atomic<bool> stream_only_{false};
  std::atomic<int> sessions_{0};
  std::atomic<int> lost_grants{0};  // so many of sessions to come do not arrive
  std::atomic<std::uint32_t> lease_ms{60'000}, session_lease_ms{30'000};
  std::atomic<bool> grants{true};
  std::atomic<std::uint32_t> slot_bytes{kSlotBytes}, slots{kSlots};  // of lanes to come
  std::atomic<std::uint64_t> generation_lie{0};                      // added to what is granted

  [[nodiscard]] std::vector<std::byte> file();
  [[nodiscard]] std::vector<Request> requests();  // all that came, in order
  [[nodiscard]] std::size_t Count(Opcode opcode);
  [[nodiscard]] std::size_t made() const { return made_; }          // mkdirs carried out
  [[nodiscard]] std::size_t written() const { return written_; }    // writes carried out
  [[nodiscard]] std::size_t misdeeds() const { return misdeeds_; }  // by the client

 private:
  void DropLocked();  // under mutex_
  bool Refuses();
  struct LaneState {
    std::unique_ptr<transport::Connection> connection;
    std::unique_ptr<transport::MemoryRegion> staging;
    std::uint32_t slot_bytes = 0;
    std::jthread thread;
    std::atomic<bool> drop{false};
    bool stall = false;
  };
  Result<std::unique_ptr<transport::Connection>> NewLane(
      const std::shared_ptr<transport::Domain>& client_domain);
  void Serve(LaneState& lane, const std::stop_token& stop);
  void OnMessage(LaneState& lane, ByteSpan message);
  struct Record {
    std::vector<std::byte> arguments;  // what must be the same when the request comes again
    Reply reply;
  };
  static std::vector<std::byte> Arguments(const Request& request);
  Reply AnswerOnce(LaneState& lane, const Request& request);
  Reply Answer(LaneState& lane, const Request& request);
  Reply Attach(LaneState& lane);
  Reply Read(const Request& request);
  Reply Write(LaneState& lane, const Request& request);
  std::vector<std::byte> GrantFor(std::uint64_t last_epoch);

  std::shared_ptr<transport::Domain> domain_;
  std::unique_ptr<transport::MemoryRegion> arena_;        // the file's bytes
  std::unique_ptr<transport::MemoryRegion> generations_;  // a word for each extent
  std::mutex mutex_;
  Hook hook_;                                      // under mutex_
  Gate gate_;                                      // under mutex_
  ClientEnd client_end_;                           // under mutex_
  std::vector<std::unique_ptr<LaneState>> lanes_;  // under mutex_
  std::vector<Request> requests_;                  // under mutex_
  std::map<std::uint64_t, Record> records_;        // under mutex_
  std::set<std::uint64_t> opens_;                  // under mutex_
  std::uint64_t epoch_ = 1;                        // under mutex_
  std::uint64_t verifier_ = 1;                     // under mutex_
  std::uint64_t given_up_ = 0;                     // under mutex_: sessions
  std::uint64_t next_open_ = 100;                  // under mutex_
  std::uint64_t change_ = 1;                       // under mutex_
  bool resumed_ = true;                            // under mutex_
  std::atomic<bool> refuse_{false};
  std::atomic<int> refused_{0};
  std::atomic<std::size_t> made_{0};
  std::atomic<std::size_t> written_{0};
  std::atomic<std::size_t> misdeeds_{0};
};

}  // namespace rdfs::fs::client
