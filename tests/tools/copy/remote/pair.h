// A caller and a far end in one process, over a real session and lane.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/transport/kinds.h"
#include "tools/copy/remote/door.h"
#include "tools/copy/remote/wire.h"
#include "transport/session/acceptor.h"
#include "transport/session/session.h"

namespace rdfs::copy {

class Pair {
 public:
  // One that could not be made has a problem().
  explicit Pair(transport::Kind kind) {
    if (const Status status = Open(kind); !status.ok()) problem_ = status.message();
  }
  ~Pair() {
    caller_lane.reset();
    caller_second.reset();
    session_.reset();
    if (acceptor_ == nullptr) return;
    acceptor_->Stop();
    accepting_.join();
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  [[nodiscard]] const std::string& problem() const { return problem_; }

  // Another lane of the same session: at the caller, and at the far end.
  Status OpenSecond(transport::Kind kind) {
    RDFS_ASSIGN_OR_RETURN(auto lanes, OpenOther(kind));
    caller_second = std::move(lanes.caller);
    far_second = std::move(lanes.far);
    return {};
  }
  struct Other {
    std::unique_ptr<transport::Connection> caller, far;
  };
  Result<Other> OpenOther(transport::Kind kind) {
    using std::chrono_literals::operator""s;
    const Deadline deadline = DeadlineAfter(20s);
    Other out;
    RDFS_ASSIGN_OR_RETURN(out.caller, session_->OpenLaneOver(kind, deadline));
    while (out.far == nullptr && BootClock::now() < deadline) {
      out.far = door_->TakeOther();
      if (out.far == nullptr) std::this_thread::yield();
    }
    if (out.far == nullptr) return Status(Code::kDeadlineExceeded, "no other lane");
    return out;
  }

  std::shared_ptr<transport::Domain> caller_domain = transport::Domain::Create("caller");
  std::unique_ptr<transport::Connection> caller_lane;
  Guest far;
  std::unique_ptr<transport::Connection> caller_second, far_second;

 private:
  Status Open(transport::Kind kind) {
    using std::chrono_literals::operator""s;
    RDFS_ASSIGN_OR_RETURN(door_, Door::Create());
    transport::AcceptorOptions accept;
    const std::string address = transport::TestAddress();
    accept.addresses = {address};
    accept.port = 0;
    accept.keys = {{"ssh", transport::Key("sesame")}};
    RDFS_ASSIGN_OR_RETURN(acceptor_, transport::Acceptor::Create(accept, *door_));
    accepting_ = std::thread([this] { (void)acceptor_->Run(); });
    transport::DialOptions dial;
    dial.host = address;
    dial.port = acceptor_->port();
    dial.key = transport::Key("sesame");
    dial.service = std::string(kServiceName);
    dial.request = EncodeHello();
    dial.deadline = DeadlineAfter(20s);
    RDFS_ASSIGN_OR_RETURN(session_, transport::Session::Dial(std::move(dial), caller_domain));
    RDFS_ASSIGN_OR_RETURN(caller_lane, session_->OpenLaneOver(kind, DeadlineAfter(20s)));
    RDFS_ASSIGN_OR_RETURN(far, door_->Await(-1, DeadlineAfter(20s)));
    return {};
  }

  std::string problem_;
  std::unique_ptr<Door> door_;
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::thread accepting_;
  std::unique_ptr<transport::Session> session_;
};

}  // namespace rdfs::copy
