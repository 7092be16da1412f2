#include "tools/sock/preload/handover.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/sock/peer_socket.h"
#include "tools/sock/preload/connection.h"

namespace rdfs::sock {
namespace {

// Descriptors above are not looked at: what a program inherits is low.
constexpr int kMostInherited = 1024;
// Instead of the cookie of a connection that closes on exec. No socket has it.
constexpr unsigned kNoCookie = 0;

// The slots are this user's secrets: nobody else may find them open, nor a program that without
// this library would leave them open for the next.
bool MayPass(int slots, const Successor& next) {
  struct stat status {};
  return slots >= 0 && fstat(slots, &status) == 0 && status.st_uid == geteuid() &&
         LoadsThisLibrary(next);
}

bool IsHeldVariable(const char* variable) {
  const std::size_t length = std::strlen(kHeldVariable);
  return std::strncmp(variable, kHeldVariable, length) == 0 && variable[length] == '=';
}

void ClosesOnExec(int fd, bool closes) { (void)fcntl(fd, F_SETFD, closes ? FD_CLOEXEC : 0); }

// A number that ends with `end`; false when there is none.
bool Number(const char*& text, int base, char end, std::uint64_t& number) {
  char* behind = nullptr;
  number = strtoull(text, &behind, base);
  if (behind == text || *behind != end) return false;
  text = behind + 1;
  return true;
}

void TakeConnection(std::uint64_t cookie, std::uint32_t index) {
  bool first = true;
  for (int fd = 0; fd < kMostInherited; ++fd) {
    const auto mine = CookieOf(fd);
    if (!mine.ok() || *mine != cookie) continue;
    NoteInherited(fd, index, first);
    first = false;
  }
}

}  // namespace

Handover::Handover(const Successor& next) {
  const int saved = errno;
  const int slots = Slots().fd();
  if (IsThisProcess() && !StandsAside() && MayPass(slots, next)) {
    const auto add = [](void* self, int fd, std::uint32_t index) {
      static_cast<Handover*>(self)->Add(fd, index);
    };
    const auto leave = [](void* self, int /*fd*/, std::uint32_t index) {
      static_cast<Handover*>(self)->Leave(index);
    };
    ForEachHeld(true, add, this);
    ForEachHeld(false, leave, this);
  }
  if (!empty()) ClosesOnExec(slots, false);
  errno = saved;
}

Handover::~Handover() {
  const int saved = errno;
  for (std::size_t i = 0; i < count_; ++i) --Slots()[indexes_[i]].handed;
  if (!empty()) ClosesOnExec(Slots().fd(), true);
  errno = saved;
}

bool Handover::HandsOn(std::uint32_t index) const {
  const auto end = indexes_.begin() + static_cast<std::ptrdiff_t>(count_);
  return std::find(indexes_.begin(), end, index) != end;
}

template <typename... Values>
void Handover::Print(const char* format, Values... values) {
  length_ += static_cast<std::size_t>(
      snprintf(text_.data() + length_, text_.size() - length_, format, values...));
}

void Handover::Add(int fd, std::uint32_t index) {
  const auto cookie = CookieOf(fd);
  // Of a connection with two descriptors, the first.
  if (!cookie.ok() || count_ == kMost || HandsOn(index)) return;
  if (empty()) Print("%s=%d;%d;", kHeldVariable, getpid(), Slots().fd());
  Print("%llx:%u;", static_cast<unsigned long long>(*cookie), static_cast<unsigned>(index));
  indexes_[count_++] = index;
  ++Slots()[index].handed;
}

void Handover::Leave(std::uint32_t index) {
  if (left_ == kMost || HandsOn(index) || Slots()[index].OnlyHolderIs(getpid())) return;
  if (empty()) Print("%s=%d;%d;", kHeldVariable, getpid(), Slots().fd());
  Print("%x:%u;", kNoCookie, static_cast<unsigned>(index));
  ++left_;
}

std::size_t Handover::Count(char* const* variables) {
  std::size_t count = 2;  // ours, and the null at the end
  while (variables != nullptr && variables[count - 2] != nullptr) ++count;
  return count;
}

void Handover::Fill(char* const* variables, char** out) const {
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    if (!IsHeldVariable(*variables)) *out++ = *variables;
  }
  if (!empty()) *out++ = const_cast<char*>(text_.data());
  *out = nullptr;
}

void TakeHeld() {
  NoteThisLibrary();
  const char* text = getenv(kHeldVariable);
  if (text == nullptr) return;
  const int saved = errno;
  std::uint64_t pid = 0;
  std::uint64_t slots = 0;
  // Somebody else's has come through a program that knows nothing of it.
  if (Number(text, 10, ';', pid) && Number(text, 10, ';', slots) &&
      pid == static_cast<std::uint64_t>(getpid()) && slots < DescriptorTable::kMost &&
      Slots().Adopt(static_cast<int>(slots))) {
    ClosesOnExec(static_cast<int>(slots), true);
    Registry().Hide(static_cast<int>(slots));
    std::uint64_t cookie = 0;
    std::uint64_t index = 0;
    while (Number(text, 16, ':', cookie) && Number(text, 10, ';', index)) {
      if (index >= SlotArena::kMost) continue;
      const auto slot = static_cast<std::uint32_t>(index);
      if (cookie != kNoCookie) {
        TakeConnection(cookie, slot);
      } else if (Slots()[slot].Leave(getpid())) {
        Slots().Give(slot);
      }
    }
  }
  (void)unsetenv(kHeldVariable);
  errno = saved;
}

}  // namespace rdfs::sock
