// Rdfsd: a real rdfsd for a test, exporting a private directory on a free port of loopback, or of
// the RDMA device that there is (tests/transport/kinds.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fs/client/client.h"

namespace rdfs::fs::client {

class Rdfsd {
 public:
  // Whether it may find a file that has no name: root may (open_by_handle_at(2)), nobody else.
  enum class OpensByHandle { kAsWeMay, kNo };
  // `options` of rdfsd, besides its own; `descriptors`: its limit, if not this process's.
  explicit Rdfsd(std::vector<std::string> options = {}, std::size_t descriptors = 0,
                 OpensByHandle by_handle = OpensByHandle::kAsWeMay);
  ~Rdfsd();
  Rdfsd(const Rdfsd&) = delete;
  Rdfsd& operator=(const Rdfsd&) = delete;

  // Starts it (again, on the same port) and waits until it is ready.
  void Start();
  // kill -9 of the process that serves; its supervisor starts another.
  void KillWorker();
  // kill -9 of everything: nothing is restarted.
  void KillAll();
  // SIGSTOP and SIGCONT of the process that serves.
  void Stop();
  void Continue();

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  // Descriptors that are open in the process that serves, and in its supervisor.
  [[nodiscard]] std::size_t WorkerDescriptors() const;
  [[nodiscard]] std::size_t SupervisorDescriptors() const;
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] DialFunction Dialer(transport::Kind kind) const;

 private:
  // Empty when it is ready, else what it said before it ended.
  std::string StartOnce();
  [[nodiscard]] pid_t Worker() const;

  std::filesystem::path directory_;  // private; holds root_ and the runtime directory
  std::filesystem::path root_;
  std::uint16_t port_ = 0;
  const std::vector<std::string> options_;
  const std::size_t descriptors_;
  const OpensByHandle by_handle_;
  pid_t pid_ = -1;
};

}  // namespace rdfs::fs::client
