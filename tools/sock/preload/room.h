// Room for an array whose length a program decides: a short one lies in place, a longer one is
// allocated. Value-initialised; data() is null when there is no memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>

namespace rdfs::sock {

template <typename T, std::size_t kHere>
class Room {
 public:
  explicit Room(std::size_t count)
      : more_(count > kHere ? static_cast<T*>(std::calloc(count, sizeof(T))) : nullptr),
        data_(count > kHere ? more_ : here_.data()) {}
  ~Room() { std::free(more_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  [[nodiscard]] T* data() const { return data_; }
  T& operator[](std::size_t index) const { return data_[index]; }

 private:
  std::array<T, kHere> here_{};
  T* const more_;
  T* const data_;
};

}  // namespace rdfs::sock
