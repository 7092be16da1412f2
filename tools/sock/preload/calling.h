// Calling: the call that a thread is in on the End of an attached connection, which knows its
// socket by the number that the program gave. As the kernel's calls do it keeps the socket when
// another thread closes that number.
//
// On the stack of the call; its thread alone.
#pragma once

#include "tools/sock/preload/connection.h"

namespace rdfs::sock {

class Calling {
 public:
  Calling(Connection& connection, int fd);
  ~Calling();
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

  // The number by which the socket of this thread's call can be used while this lives; others are
  // what they are.
  class Number {
   public:
    explicit Number(int fd);
    ~Number();
    Number(const Number&) = delete;
    Number& operator=(const Number&) = delete;
    [[nodiscard]] int get() const { return fd_; }

   private:
    int fd_;
    Connection* connection_ = nullptr;
  };

  // A number that stays the socket's while the call lasts, for poll: whenever that is woken it
  // looks up the number again, which may be another file's by then. With several threads alone does
  // this cost a descriptor.
  static int LastingNumber(int fd);
  // Whether this thread is in a call on it, or has left one by siglongjmp and made none since.
  static bool Mine(const Connection& connection);
  // This thread itself closes the number, in a signal handler or behind siglongjmp.
  static void ClosedByItself(int fd);
  // In a child of this thread's, which has the number to itself.
  static void IsOver();
  // How many Numbers of this thread live: only below a signal handler are there any.
  static std::uint32_t touches();
  // The thread is cancelled in the middle of it: lets go of the connection.
  static void Cancelled(void*);
};

}  // namespace rdfs::sock
