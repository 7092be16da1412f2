// rdfs_pipe: one stream of a program's, and the thread that moves it.
//
//   program's threads: Write, Read, Finish --Handover--> driver: Deliver, or Reception::Run
//
// The driver's thread lives from the making to Finish, or to the destruction, which interrupts it.
// It blocks all signals. Any thread may call; the destruction comes last.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "fs/library/rdfs.h"
#include "tools/pipe/command/options.h"
#include "tools/pipe/io/handover.h"
#include "tools/pipe/io/stopping.h"
#include "tools/pipe/receive/reception.h"
#include "transport/base/event_fd.h"

struct rdfs_pipe {
 public:
  // Until a receiver is there, or why there is none.
  static rdfs::Result<std::unique_ptr<rdfs_pipe>> Send(rdfs::pipe::SendOptions options);
  static rdfs::Result<std::unique_ptr<rdfs_pipe>> Listen(rdfs::pipe::ReceiveOptions options);
  rdfs_pipe(const rdfs_pipe&) = delete;
  rdfs_pipe& operator=(const rdfs_pipe&) = delete;
  // A stream that is not whole breaks off, at the other end as well.
  ~rdfs_pipe();

  ssize_t Write(rdfs::ByteSpan bytes);
  ssize_t Read(rdfs::MutableByteSpan room,
               std::optional<std::chrono::milliseconds> limit = std::nullopt);
  int Finish();
  [[nodiscard]] int port() const { return reception_ ? int{reception_->port()} : -EINVAL; }
  [[nodiscard]] std::string transport() const;
  // Not in a child after a fork: the driver is the parent's.
  [[nodiscard]] bool IsOfThisProcess() const { return process_ == getpid(); }
  // As rdfs_pipe_sentence says; the calling thread's.
  [[nodiscard]] const char* sentence() const;

 private:
  rdfs_pipe(std::shared_ptr<rdfs::pipe::Handover> bytes, rdfs::EventFd interrupt)
      : bytes_(std::move(bytes)), interrupt_(std::move(interrupt)) {}
  static rdfs::Result<std::unique_ptr<rdfs_pipe>> Make();
  void Deliver(const rdfs::pipe::SendOptions& options);
  void Receive();
  void Reached(const std::string& how);
  void Ended(rdfs::Status status);
  // Of the driver's thread, once it is over.
  rdfs::Status Join();
  int Tell(const rdfs::Status& status);

  const pid_t process_ = getpid();
  const std::shared_ptr<rdfs::pipe::Handover> bytes_;
  const rdfs::EventFd interrupt_;
  rdfs::pipe::StopFlag stop_{false};
  std::unique_ptr<rdfs::pipe::Reception> reception_;  // null: this sends

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string how_;                     // under mutex_; empty: not there yet
  std::optional<rdfs::Status> status_;  // under mutex_: of the driver, when it is over
  std::string sentence_;                // under mutex_
  bool whole_ = false;                  // under mutex_: a reader has seen the end

  std::mutex joining_;  // taken before mutex_
  std::thread driver_;  // under joining_; last: what it uses is there
};
