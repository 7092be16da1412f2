// A program whose allocator is part of it, as jemalloc is of redis, and forks with its lock held:
// the allocator's handlers of pthread_atfork are registered behind the library's, so that the
// library's runs first in the child. Connections that wait for their other end have something to be
// freed.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// --- the allocator: each piece has its size before it, and none is used again

constexpr std::size_t kAlignment = 16;
alignas(kAlignment) char g_memory[64 * 1024 * 1024];
std::size_t g_used = 0;
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
bool g_forks = false;  // this thread, which has the lock for that

void Lock() {
  if (g_forks) {  // it would wait for itself
    constexpr char kWhat[] = "something is allocated or freed while the allocator is locked\n";
    (void)!write(STDERR_FILENO, kWhat, sizeof(kWhat) - 1);
    _exit(1);
  }
  pthread_mutex_lock(&g_lock);
}
void Unlock() { pthread_mutex_unlock(&g_lock); }

void BeforeFork() {
  Lock();
  g_forks = true;
}
void AfterFork() {
  g_forks = false;
  Unlock();
}

void* Allocate(std::size_t alignment, std::size_t size) {
  if (alignment < kAlignment) alignment = kAlignment;
  Lock();
  const std::size_t at = (g_used + kAlignment + alignment - 1) / alignment * alignment;
  const bool fits = at <= sizeof(g_memory) && size <= sizeof(g_memory) - at;
  if (fits) g_used = at + size;
  Unlock();
  if (!fits) {
    errno = ENOMEM;
    return nullptr;
  }
  std::memcpy(g_memory + at - sizeof(size), &size, sizeof(size));
  return g_memory + at;
}

}  // namespace

extern "C" {
void* malloc(std::size_t size) noexcept { return Allocate(kAlignment, size); }
void free(void* memory) noexcept {
  if (memory == nullptr) return;
  Lock();
  Unlock();
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t all = 0;
  if (!__builtin_mul_overflow(count, size, &all)) return Allocate(kAlignment, all);
  errno = ENOMEM;
  return nullptr;
}
void* realloc(void* memory, std::size_t size) noexcept {
  void* const larger = Allocate(kAlignment, size);
  if (memory == nullptr || larger == nullptr) return larger;
  std::size_t before = 0;
  std::memcpy(&before, static_cast<char*>(memory) - sizeof(before), sizeof(before));
  return std::memcpy(larger, memory, before < size ? before : size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return Allocate(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  *memory = Allocate(alignment, size);
  return *memory != nullptr ? 0 : ENOMEM;
}
}

namespace {

constexpr int kConnections = 4;
constexpr int kCalls = 8;  // an attempt to meet begins in the last one

void Check(bool good, const char* what) {
  if (good) return;
  perror(what);
  _exit(2);
}

int OpenDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  Check(folder != nullptr, "/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Both ends are here, and the server's makes no call: nobody comes to meet.
void ConnectOne(int listener, const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  Check(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "connect");
  Check(accept(listener, nullptr, nullptr) >= 0, "accept");
  for (int i = 0; i < kCalls; ++i) Check(send(fd, "x", 1, 0) == 1, "send");
}

}  // namespace

int main() {
  alarm(50);
  Check(pthread_atfork(BeforeFork, AfterFork, AfterFork) == 0, "pthread_atfork");
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  Check(bind(listener, place, size) == 0 && listen(listener, kConnections) == 0 &&
            getsockname(listener, place, &size) == 0,
        "listen");
  const int before = OpenDescriptors();
  for (int i = 0; i < kConnections; ++i) ConnectOne(listener, address);
  const int open = OpenDescriptors();
  // Two ends of each, and where its other end would come; and what the library has once.
  if (open < before + 3 * kConnections) {
    fprintf(stderr, "%d descriptors came with %d connections\n", open - before, kConnections);
    return 1;
  }
  const pid_t child = fork();
  Check(child >= 0, "fork");
  if (child == 0) {
    const int left = OpenDescriptors();
    if (left == open - kConnections) _exit(0);
    fprintf(stderr, "of %d descriptors the child has %d\n", open, left);
    _exit(1);
  }
  int status = -1;
  Check(waitpid(child, &status, 0) == child, "waitpid");
  if (status != 0) fprintf(stderr, "the child ended with status %d\n", status);
  return status == 0 ? 0 : 1;
}
