// The caller's end: starts rdcp on another machine over ssh, and copies to or from it.
//
// One thread, the command's; blocks until the copy has ended. What becomes of single files goes to
// the report.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copy/destination/decide.h"
#include "tools/copy/file/entry.h"
#include "tools/copy/remote/errand.h"
#include "tools/copy/remote/lane_dialler.h"
#include "tools/copy/remote/ports.h"
#include "tools/copy/remote/talk.h"
#include "tools/copy/report/report.h"
#include "tools/copy/source/filter.h"
#include "tools/copy/source/scanner.h"
#include "transport/base/status.h"
#include "transport/session/session.h"
#include "transport/ssh/launch.h"

namespace rdfs::copy {

struct Begin;

struct RemoteOptions {
  std::vector<std::string> ssh_command{"ssh"};  // -e
  std::string rdcp_path = "rdcp";               // --rdcp-path
  bool bootstrap = false;                       // --bootstrap
  PortRange ports;                              // --port
  std::optional<transport::Kind> require;       // this transport only
  bool plaintext = false;                       // no TLS over TCP to another host
  bool require_encryption = false;              // --require-encryption

  ScanOptions scan;                // at either end; a filter only here
  std::vector<std::string> rules;  // the same filter for there: see Rules::given
  Keep keep;
  bool in_place = false;
  bool resume = false;  // with policy.sync
  Policy policy;
  bool remove = false;  // --delete
  bool verify = false;
  bool dry_run = false;
  std::uint64_t limit = 0;       // --bwlimit, bytes a second
  const Listed* list = nullptr;  // that `scan` has as its filter
  std::uint32_t umask = 022;     // of this process, before SetUpProcess
  std::optional<int> lanes;      // --lanes
  int interrupts = -1;           // a descriptor: readable when the user wants to stop
  // Whether what another machine is about to send may be taken; may be empty. Of each before its
  // first file.
  std::function<Status(const Begin&)> take;
  std::function<void(const std::string&)> note;  // -v: which lane is used; may be empty
  // Unless -q: that the data go through ssh, for nothing better stands, and why; may be empty.
  std::function<void(const std::string&)> warn;
};

struct Task;

// A copy from one other machine to another.
struct Across {
  std::string from, to;  // as ssh takes them
  std::vector<std::string> paths;
  std::string destination;
  bool directory_wanted = false;
  bool counts = false;  // progress is to say how much there is to do
};
// Directly if either can reach the other, else through here; blocks. `note` is told which and why.
Status CopyAcross(const Across& job, const RemoteOptions& options, Report& report,
                  const std::function<void(const std::string&)>& note);

// A machine on which rdcp runs for us: its ssh, and the session over it.
class FarEnd {
 public:
  // kAtOnce: over ssh's own stream if nothing better has answered at once, to move to what does
  // meanwhile; where the transport is not the user's choice, and for a single copy.
  enum class FirstLane { kBest, kAtOnce };
  // `destination`: [user@]host, as ssh takes it. Blocks for as long as ssh may have questions.
  // Errors: as ssh::Start's; see ExitCodeOf.
  static Result<std::unique_ptr<FarEnd>> Start(const std::string& destination,
                                               const RemoteOptions& options, FirstLane first);
  // One that waits for another far end, which `sends` or fetches, to do its part of `job` with it
  // and nothing else; `to` is set to what reaches it, with port zero if it cannot listen.
  static Result<std::unique_ptr<FarEnd>> StartWaiting(const std::string& destination,
                                                      const RemoteOptions& options,
                                                      const Across& job, bool sends, Meeting& to);
  // The second far end, which connects to the waiting one: for CopyAcross.
  static Result<std::unique_ptr<FarEnd>> StartTo(const std::string& destination,
                                                 const RemoteOptions& options, const Meeting& to);
  FarEnd(const FarEnd&) = delete;
  FarEnd& operator=(const FarEnd&) = delete;

  // Copies `paths` there (patterns too) to DST here. `directory_wanted`: there are more sources
  // than these. One of the two, once. Errors: what ended all of it, named with the host.
  Status CopyFrom(const std::vector<std::string>& paths, const std::string& destination,
                  bool directory_wanted, Report& report);
  // Copies `paths` here to DST there.
  Status CopyTo(const std::vector<std::string>& paths, const std::string& destination,
                bool directory_wanted, Report& report);
  // Copies between this far end, of StartTo, and the one that was named to it: sends if it has the
  // sources, else fetches. False if it could not reach the other, and nothing was copied. `how` is
  // over which transport, or why not.
  Result<bool> CopyAcross(const Across& job, bool sends, Report& report, std::string& how);
  // The same through here: `from` has the sources. Both of Start.
  static Status Relay(FarEnd& from, FarEnd& to, const Across& job, Report& report);
  // The data go through ssh, nothing better is being tried, and the user did not ask for that.
  [[nodiscard]] bool stays() const;
  // "shm; not verbs: ...", for -v.
  [[nodiscard]] std::string ExplainChoice() const;
  // A thread still does, and holds up who does not end by _exit.
  [[nodiscard]] bool dialling() const {
    return (better_ != nullptr && better_->dialling()) || (further_ && further_->dialling());
  }

 private:
  FarEnd(std::string name, RemoteOptions options)
      : name_(std::move(name)), options_(std::move(options)) {}
  // The data go through ssh, and nothing better is being tried.
  [[nodiscard]] bool on_stream() const;
  // How many further lanes may carry batches.
  [[nodiscard]] int FurtherWanted() const;
  [[nodiscard]] transport::ssh::Launch LaunchWith(const FirstLine& line) const;
  static Result<transport::ssh::Started> SendAndStart(const transport::ssh::Launch& launch);
  Status Dial(const transport::ssh::Launch& launch, std::string_view service, Bytes request,
              Meeting* told);
  Status OpenLane();
  Status OpenLaneAtOnce();
  // Of a Talk over our lane, to be moved.
  TalkSettings SettingsToMove(Report& report);
  // Once: -v that it has moved, or has ended before it could; and unless -q that it stays.
  void NoteMove(const Talk& talk, bool ended);
  // -v: over how many lanes the data went, if there were several.
  void NoteLanes();
  // Whether progress is to say how much there is to do.
  [[nodiscard]] bool Counts(const Report& report) const;
  Status SendTask(const Task& task);
  [[nodiscard]] Task NewTask() const;
  // The task of the far end that connects to the other one.
  [[nodiscard]] Task TaskAcross(const Across& job, bool sends) const;

  const std::string name_;
  const RemoteOptions options_;
  std::shared_ptr<transport::Domain> domain_;
  std::shared_ptr<transport::Session> session_;
  std::unique_ptr<transport::Connection> lane_;
  std::unique_ptr<LaneDialler> better_;          // while lane_ is ssh's own stream
  std::unique_ptr<transport::Connection> next_;  // of better_
  std::optional<FurtherLanes> further_;          // of the copy
  bool noted_ = false;
};

// 127 when rdcp is not there, as a shell says it; else 1.
int ExitCodeOf(const Status& status);

}  // namespace rdfs::copy
