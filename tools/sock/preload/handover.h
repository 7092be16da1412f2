// Handover: what exec hands on to a program that has this library, too: connections that are plain
// still, with the slots that say who else holds them. So a program that inherits a connection
// (inetd, CGI, sshd) can go on as its opener or accepter would have.
//
// And those that close on exec, while others hold them: the next program of this process is none of
// their holders any more, and says so. Before exec it would be too early, for exec may fail.
//
// By way of one variable of the environment, which is good for this very process only, and the
// descriptor of the slots' memory, which stays open across exec, for programs alone that have the
// library (successor.h). The process of another one stays a holder, and the connection on TCP.
//
// On the stack of the call; allocates nothing, for exec may be called where that is not allowed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/sock/preload/successor.h"

namespace rdfs::sock {

inline constexpr const char* kHeldVariable = "RDSOCK_HELD";

class Handover {
 public:
  explicit Handover(const Successor& next);
  // When exec has failed.
  ~Handover();
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // The connections that are handed on.
  [[nodiscard]] std::span<const std::uint32_t> taken() const { return {indexes_.data(), count_}; }
  // How many pointers Fill needs room for.
  static std::size_t Count(char* const* variables);
  // The variables that the program is to have.
  void Fill(char* const* variables, char** out) const;

 private:
  [[nodiscard]] bool empty() const { return length_ == 0; }
  [[nodiscard]] bool HandsOn(std::uint32_t index) const;
  void Add(int fd, std::uint32_t index);
  void Leave(std::uint32_t index);
  template <typename... Values>
  void Print(const char* format, Values... values);

  static constexpr std::size_t kMost = 32;  // of each kind; more of them stay on TCP
  std::array<std::uint32_t, kMost> indexes_{};
  std::size_t count_ = 0;
  std::size_t left_ = 0;
  std::array<char, 64 + 2 * kMost * 32> text_{};
  std::size_t length_ = 0;
};

// At the beginning of a program: takes what was handed on.
void TakeHeld();

}  // namespace rdfs::sock
