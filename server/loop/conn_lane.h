// ConnLane: a Lane over a transport connection. The loop's thread only, except Post.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/loop/answer_times.h"
#include "server/loop/lane.h"
#include "server/write/staging.h"
#include "transport/transport.h"

namespace rdfs::server {

class ConnLane final : public Lane {
 public:
  using PostFunction = std::function<void(std::function<void()>)>;

  static std::shared_ptr<ConnLane> Create(SessionPtr session,
                                          std::unique_ptr<transport::Connection> connection,
                                          std::shared_ptr<StagingBudget> budget,
                                          std::uint64_t epoch, PostFunction post,
                                          std::vector<std::weak_ptr<ConnLane>>& unflushed,
                                          AnswerTimes& times);
  ~ConnLane() override { Close(); }

  void Send(std::span<const ByteSpan> parts) override;
  void Answered(fs::Opcode opcode, TimePoint taken) override {
    if (!closed()) times_.Note(opcode, taken);
  }
  std::shared_ptr<Staging> MakeStaging(std::size_t wished_bytes) override;
  void Post(std::function<void()> task) override { post_(std::move(task)); }

  [[nodiscard]] transport::Connection& connection() { return *connection_; }
  // Answers wait until Release: what a Poll returned is valid only until the next Send.
  void Hold() { holding_ = true; }
  void Release();
  Status Flush();
  // Whether its peer has left so many answers waiting, or more than one where its mount has too
  // many, that it is to be heard no more meanwhile. Over verbs only a Poll learns that there is
  // room again: there it is heard on.
  [[nodiscard]] bool BacklogFull() const {
    const std::size_t backlog = connection_->backlog_bytes();
    if (backlog == 0 || connection_->capabilities().kind == transport::Kind::kVerbs) return false;
    return backlog > transport::Connection::kBacklogLimit ||
           (connection_->kept_bytes() > 0 && TooManyUnread());
  }
  // Whether its mount has too many answers waiting: it is heard with one message at a time, whose
  // answer may have to wait as well.
  [[nodiscard]] bool TooManyUnread() const {
    const auto& unread = session()->params().unread;
    return unread != nullptr && unread->TooMany();
  }
  // Whether it is more than what any client that takes its answers leaves waiting (twice as many as
  // it may have asked for, of the largest): it is to end.
  [[nodiscard]] bool BacklogTooLarge() const {
    return connection_->backlog_bytes() > 8 * transport::Connection::kBacklogLimit;
  }
  // A message has come. What is sent, or taken by a peer that is behind, counts as well: a client
  // that is told something needs not ask whether its server lives.
  void NoteWord() { silent_looks_ = 0; }
  // How many looks in a row, this one included, have come without such a word in between.
  unsigned NoteLook() { return ++silent_looks_; }
  // Ends the connection; nothing is sent or granted any more.
  void Close();
  [[nodiscard]] bool closed() const { return connection_ == nullptr; }
  // Why sending failed, once it has.
  [[nodiscard]] const Status& failure() const { return failure_; }

  bool armed = false;  // waits in epoll; the loop's own mark

 private:
  ConnLane(SessionPtr session, std::unique_ptr<transport::Connection> connection,
           std::shared_ptr<StagingBudget> budget, PostFunction post,
           std::vector<std::weak_ptr<ConnLane>>& unflushed, AnswerTimes& times);
  void SendNow(std::span<const ByteSpan> parts);
  void CountUnread(std::size_t now);

  std::unique_ptr<transport::Connection> connection_;
  const std::shared_ptr<StagingBudget> budget_;
  const PostFunction post_;
  std::vector<std::weak_ptr<ConnLane>>& unflushed_lanes_;  // the loop's list
  AnswerTimes& times_;                                     // the loop's, until Close
  Status failure_;
  bool holding_ = false;
  bool unflushed_ = false;
  unsigned silent_looks_ = 0;
  std::size_t counted_unread_ = 0;
  std::vector<std::byte> held_;  // messages, each behind its size
  std::vector<std::size_t> held_sizes_;
};

}  // namespace rdfs::server
