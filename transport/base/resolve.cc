#include "transport/base/resolve.h"

#include <signal.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace rdfs {
namespace {

struct Answer {
  int error = 0;
  int system_error = 0;  // errno with EAI_SYSTEM
  AddressList list;
};

Answer Ask(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string service = std::to_string(port);
  Answer answer;
  answer.error = getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &list);
  answer.system_error = errno;
  answer.list.reset(list);
  return answer;
}

// Who waits and who asks have it together: each may be the last.
struct Asked {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
  Answer answer;
};

// On a thread without signals, which are the program's others'. Where there is none to be had it
// has been asked already.
std::thread AskBeside(const std::shared_ptr<Asked>& asked, const std::string& host,
                      std::uint16_t port, int flags) {
  std::thread thread;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread = std::thread([=] {
      Answer answer = Ask(host, port, flags);
      const std::lock_guard lock(asked->mutex);
      asked->answer = std::move(answer);
      asked->done = true;
      asked->answered.notify_all();
    });
  } catch (const std::system_error&) {  // no thread to be had
    asked->answer = Ask(host, port, flags);
    asked->done = true;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Result<AddressList> ResolveHost(const std::string& host, std::uint16_t port, int flags,
                                Deadline deadline) {
  Answer answer = Ask(host, port, flags | AI_NUMERICHOST);
  if (answer.error == EAI_NONAME && !host.empty()) {
    const auto asked = std::make_shared<Asked>();
    std::thread thread = AskBeside(asked, host, port, flags);
    std::unique_lock lock(asked->mutex);
    if (!asked->answered.wait_until(lock, deadline, [&] { return asked->done; })) {
      thread.detach();
      return Status(Code::kDeadlineExceeded,
                    "no name server has said in time what the host '" + host +
                        "' is; check /etc/resolv.conf, or give its address");
    }
    answer = std::move(asked->answer);
    lock.unlock();
    // It is about to end: with it goes what the C library has of it, before the program's own end.
    if (thread.joinable()) thread.join();
  }
  if (answer.error == EAI_SYSTEM) {
    return Status::FromErrno(answer.system_error, "cannot look up '" + host + "'");
  }
  if (answer.error != 0) {
    return Status(Code::kNotFound, "the host '" + host + "' is not known (" +
                                       gai_strerror(answer.error) +
                                       "); check its spelling or give its address");
  }
  return std::move(answer.list);
}

}  // namespace rdfs
