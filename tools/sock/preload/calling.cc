#include "tools/sock/preload/calling.h"

#include <sys/single_threaded.h>

namespace rdfs::sock {
namespace {

struct Call {
  Connection* connection = nullptr;
  int fd = -1;
};
constinit thread_local Call t_call{};
constinit thread_local std::uint32_t t_touches = 0;

}  // namespace

// A signal handler's call leaves nothing behind for the one that it has interrupted, lest one that
// was left by siglongjmp does.
Calling::Calling(Connection& connection, int fd) { t_call = {&connection, fd}; }
Calling::~Calling() { t_call = {}; }

Calling::Number::Number(int fd) : fd_(fd) {
  if (fd != t_call.fd || t_call.connection == nullptr) return;
  connection_ = t_call.connection;
  ++t_touches;
  ++connection_->touching;  // before the look: who closes waits
  if (Registry().Get(fd) != Word(Word::Kind::kConnection, connection_->index())) {
    fd_ = connection_->kept();
  }
}

Calling::Number::~Number() {
  if (connection_ == nullptr) return;
  --connection_->touching;
  --t_touches;
}

bool Calling::Mine(const Connection& connection) { return t_call.connection == &connection; }
void Calling::ClosedByItself(int fd) {
  if (t_call.fd == fd) t_call = {};
}
void Calling::IsOver() { t_call = {}; }
std::uint32_t Calling::touches() { return t_touches; }

int Calling::LastingNumber(int fd) {
  if (fd != t_call.fd || t_call.connection == nullptr || __libc_single_threaded != 0) return fd;
  const Number number(fd);
  t_call.connection->Keep(number.get());
  const int kept = t_call.connection->kept();
  return kept >= 0 ? kept : number.get();
}

void Calling::Cancelled(void*) {
  if (t_call.connection != nullptr) t_call.connection->DropUser();
  t_call = {};
}

}  // namespace rdfs::sock
