// In children, since nothing of it can be taken back: their exit code names the step that went
// wrong.
#include "server/process/confine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace rdfs::server {
namespace {

int InChild(const std::function<int()>& steps) {
  const pid_t child = fork();
  if (child == 0) _exit(steps());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

std::string StatusLine(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  }
  return {};
}

// Whether `call` is refused, and not because of what it was given.
template <typename Call>
bool IsRefused(Call call) {
  errno = 0;
  return call() == -1 && errno == EPERM;
}

TEST(Confine, CallsThatNoRequestNeedsAreRefused) {
  EXPECT_EQ(
      InChild([] {
        if (!Confine().ok()) return 1;
        char* const arguments[] = {nullptr};
        if (!IsRefused([&] { return execve("/nonexistent", arguments, arguments); })) return 2;
        if (!IsRefused([] { return ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == -1 ? -1 : 0; }))
          return 3;
        if (!IsRefused([] { return mount("none", "/nonexistent", "tmpfs", 0, nullptr); })) return 4;
        if (!IsRefused([] { return unshare(CLONE_NEWUSER); })) return 5;
        if (!IsRefused([] { return unshare(CLONE_FS | CLONE_NEWNS); })) return 6;
        for (const long flags : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET,
                                 CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWCGROUP}) {
          // CLONE_THREAD alone is wrong: nothing is made where it is not refused.
          if (!IsRefused([&] { return syscall(SYS_clone, flags | CLONE_THREAD, 0, 0, 0, 0); })) {
            return 7;
          }
        }
        for (const long call :
             {SYS_fspick, SYS_fsconfig, SYS_mount_setattr, SYS_move_mount, SYS_open_tree,
              SYS_kexec_file_load, SYS_quotactl, 443 /* quotactl_fd */, 467 /* open_tree_attr */}) {
          if (!IsRefused([&] { return syscall(call, -1, 0, 0, 0, 0); })) return 8;
        }
        errno = 0;
        if (syscall(SYS_clone3, nullptr, 0) != -1 || errno != ENOSYS) return 9;
        return 0;
      }),
      0);
}

TEST(Confine, WhatServingNeedsGoesOn) {
  EXPECT_EQ(InChild([] {
              if (!Confine().ok()) return 1;
              bool ran = false;
              std::thread([&] { ran = true; }).join();
              if (!ran) return 2;
              const int file = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
              if (file < 0) return 3;
              if (unshare(CLONE_FS) != 0) return 6;
              if (geteuid() != 0) return 0;
              // Acting as a caller, and as itself again.
              (void)setfsuid(1);
              if (setfsuid(0) != 1) return 4;
              return setfsuid(0) == 0 ? 0 : 5;
            }),
            0);
}

TEST(Confine, NoRightsCanBeHadThatAreGone) {
  EXPECT_EQ(InChild([] {
              if (!Confine().ok()) return 1;
              if (StatusLine("NoNewPrivs") != "1") return 2;
              if (StatusLine("Seccomp") != "2") return 3;
              // CAP_SYS_MODULE 16, CAP_SYS_RAWIO 17, CAP_SYS_CHROOT 18, CAP_SYS_PTRACE 19,
              // CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_SYS_BOOT 22, CAP_SYS_RESOURCE 24.
              constexpr std::uint64_t kGone = 1U << 16U | 1U << 17U | 1U << 18U | 1U << 19U |
                                              1U << 12U | 1U << 13U | 1U << 22U | 1U << 24U;
              for (const char* set : {"CapPrm", "CapEff", "CapInh"}) {
                if ((std::stoull(StatusLine(set), nullptr, 16) & kGone) != 0) return 4;
              }
              if (geteuid() != 0) return 0;
              return (std::stoull(StatusLine("CapBnd"), nullptr, 16) & kGone) == 0 ? 0 : 5;
            }),
            0);
}

TEST(Confine, TwiceIsAsGoodAsOnce) {
  EXPECT_EQ(InChild([] { return Confine().ok() && Confine().ok() ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace rdfs::server
