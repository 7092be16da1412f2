// Clerk: a thread that keeps the credentials it was born with, and makes calls for one that does
// not.
//
// The kernel refuses write(2) on /dev/infiniband/* with EACCES to a thread whose credentials are
// not the very ones that opened the file (ib_safe_file_access): one setfsuid(2) is enough, and
// there is no way back. librdmacm makes all of its calls so, and the software drivers (siw, rxe)
// their doorbells. Owned by a connection; made on a thread whose credentials are the process's own;
// used by one thread at a time, which waits. A call costs two changes of thread and a futex(2) for
// each time that one of the two sleeps or is woken up: as much as a doorbell itself.
#pragma once

#include <semaphore.h>

#include <cerrno>
#include <functional>
#include <thread>

namespace rdfs::transport::verbs {

class Clerk {
 public:
  // Throws std::system_error when there can be no thread more.
  Clerk() : thread_([this] { Run(); }) {}
  ~Clerk() {
    work_ = nullptr;
    asked_.Post();
    thread_.join();
  }
  Clerk(const Clerk&) = delete;
  Clerk& operator=(const Clerk&) = delete;

  // Returns when `work` has been done.
  void Do(const std::function<void()>& work) {
    work_ = &work;
    asked_.Post();
    done_.Wait();
  }

 private:
  // sem_overview(7): one system call to wake up or to sleep, where the standard's semaphore gives
  // way several times first.
  class Semaphore {
   public:
    Semaphore() { sem_init(&semaphore_, 0, 0); }
    ~Semaphore() { sem_destroy(&semaphore_); }
    Semaphore(const Semaphore&) = delete;
    Semaphore& operator=(const Semaphore&) = delete;
    void Post() { sem_post(&semaphore_); }
    void Wait() {
      while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
      }
    }

   private:
    sem_t semaphore_{};
  };

  void Run() {
    while (true) {
      asked_.Wait();
      if (work_ == nullptr) return;
      (*work_)();
      done_.Post();
    }
  }

  Semaphore asked_;
  Semaphore done_;
  const std::function<void()>* work_ = nullptr;  // handed over by asked_; null: the end
  std::thread thread_;                           // last: it uses the others
};

}  // namespace rdfs::transport::verbs
