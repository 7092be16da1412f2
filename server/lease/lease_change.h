// LeaseChange: the changes that one request has begun in the LeaseTable (lease_table.h). They end
// when it is destroyed: with the Responder that has it, once the request is answered.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "server/inode/handle.h"

namespace rdfs::server {

class LeaseService;

class LeaseChange {
 public:
  LeaseChange() = default;
  LeaseChange(LeaseChange&& other) noexcept { *this = std::move(other); }
  LeaseChange& operator=(LeaseChange&& other) noexcept {
    End();
    service_ = std::exchange(other.service_, nullptr);
    numbers_ = std::exchange(other.numbers_, {});
    inodes_ = std::exchange(other.inodes_, {});
    anything_ = std::exchange(other.anything_, false);
    return *this;
  }
  ~LeaseChange() { End(); }

  [[nodiscard]] bool begun() const { return service_ != nullptr; }
  [[nodiscard]] bool Covers(const InodeKey& inode) const;
  // It names no inode, since nobody else was there who could have a lease on one.
  [[nodiscard]] bool CoversAnything() const { return anything_; }
  void End();

 private:
  friend class LeaseService;
  LeaseService* service_ = nullptr;
  std::vector<std::uint64_t> numbers_;
  std::vector<InodeKey> inodes_;
  bool anything_ = false;
};

}  // namespace rdfs::server
