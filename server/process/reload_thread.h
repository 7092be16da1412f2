// ReloadThread: reads exports again on a thread of its own, which is there while it does. A
// directory that does not answer then keeps nobody from hearing signals, nor the process from its
// end.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace rdfs::server {

class ReloadThread {
 public:
  // How long the destructor waits for one that is under way. Longer ones go on: `hangs` sees to it
  // that what `reload` uses stays.
  static constexpr std::chrono::seconds kPatience{1};

  ReloadThread(std::function<void()> reload, std::function<void()> hangs);
  ~ReloadThread();
  ReloadThread(const ReloadThread&) = delete;
  ReloadThread& operator=(const ReloadThread&) = delete;

  // Never blocks, but where there can be no thread: then it reloads by itself. While one is under
  // way: once more behind it, however often it is asked for.
  void Ask();

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread's, too
  const std::function<void()> hangs_;
};

}  // namespace rdfs::server
