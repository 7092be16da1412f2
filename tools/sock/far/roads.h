// Roads to other carriers: answers those that dial us and dials them, on threads of its own, so
// that the carrier never waits for either, nor one host for another that does not answer.
// PROTOCOL.md, "Between hosts"; the session's own page is transport/session/PROTOCOL.md.
//
// Made and used by the carrier's thread. Lanes come as news; fd() is readable when there are any.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tools/sock/far/lane.h"
#include "tools/sock/far/pairs.h"
#include "transport/base/event_fd.h"
#include "transport/session/acceptor.h"

namespace rdfs::sock::far {

class Roads final : private transport::SessionHost {
 public:
  // A lane, or why the dialling of one came to nothing.
  struct News {
    std::string pair;
    std::optional<Lane::Parts> parts;
    Status status;
  };

  // Listens. Errors: those of Acceptor::Create.
  static Result<std::unique_ptr<Roads>> Create(const Pairs& pairs);
  // Blocks until what is being dialled has been answered, a few seconds at most.
  ~Roads() override;
  Roads(const Roads&) = delete;
  Roads& operator=(const Roads&) = delete;

  // Whose port others may have then. Lanes go on.
  void StopAnswering();
  // Not after StopAnswering.
  [[nodiscard]] std::uint16_t port() const { return acceptor_->port(); }
  [[nodiscard]] int fd() const { return news_fd_.fd(); }
  std::vector<News> Take();
  // There will be news of it.
  void Dial(const Pair& pair, const Address& address);

 private:
  struct Errand {
    Pair pair;
    std::string host;
  };

  Roads(const Pairs& pairs, EventFd news_fd)
      : over_tcp_(pairs.over_tcp), news_fd_(std::move(news_fd)) {}
  void Report(News news);
  void StartDialling();
  void DialAll();
  [[nodiscard]] News DialOne(const Errand& errand) const;

  Result<transport::Admission> Admit(const transport::SessionRequest& request) override;
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<transport::Connection> lane) override;
  void OnSessionEnd(std::uint64_t, const std::shared_ptr<void>&) override {}

  const bool over_tcp_;
  const EventFd news_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<News> news_;      // under mutex_
  std::deque<Errand> errands_;  // under mutex_
  std::size_t idle_ = 0;        // under mutex_: of the diallers, those that wait for an errand
  bool stopping_ = false;       // under mutex_
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::thread answering_;
  std::vector<std::thread> dialling_;  // more than one once an errand had to wait
};

}  // namespace rdfs::sock::far
