#include "server/process/confine.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "transport/base/log.h"

namespace rdfs::server {
namespace {

// As packaging/systemd/rdfsd.service has them, which leaves the supervisor CAP_SYS_RESOURCE as
// well: setfsuid(2) does not take that away, and callers would write beyond their quota and into
// the blocks that are reserved for root. CAP_SYS_ADMIN: fanotify, and extended attributes that
// begin with "trusted.".
constexpr std::array kKept = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,  CAP_FOWNER,
                              CAP_FSETID, CAP_SETUID,       CAP_SETGID,           CAP_SETFCAP,
                              CAP_MKNOD,  CAP_IPC_LOCK,     CAP_NET_BIND_SERVICE, CAP_SYS_ADMIN};

// Younger than the headers of some systems.
constexpr int kQuotactlFd = 443, kOpenTreeAttr = 467;

// What somebody who got in would want next, and no request does.
constexpr std::array kRefused = {__NR_ptrace,
                                 __NR_process_vm_readv,
                                 __NR_process_vm_writev,
                                 __NR_pidfd_getfd,
                                 __NR_execve,
                                 __NR_execveat,
                                 __NR_mount,
                                 __NR_umount2,
                                 __NR_pivot_root,
                                 __NR_chroot,
                                 __NR_setns,
                                 __NR_open_tree,
                                 kOpenTreeAttr,
                                 __NR_move_mount,
                                 __NR_fsopen,
                                 __NR_fspick,
                                 __NR_fsconfig,
                                 __NR_fsmount,
                                 __NR_mount_setattr,
                                 __NR_init_module,
                                 __NR_finit_module,
                                 __NR_delete_module,
                                 __NR_kexec_load,
                                 __NR_kexec_file_load,
                                 __NR_reboot,
                                 __NR_swapon,
                                 __NR_swapoff,
                                 __NR_bpf,
                                 __NR_perf_event_open,
                                 __NR_userfaultfd,
                                 __NR_keyctl,
                                 __NR_add_key,
                                 __NR_request_key,
                                 __NR_acct,
                                 __NR_settimeofday,
                                 __NR_clock_settime,
                                 __NR_adjtimex,
                                 __NR_clock_adjtime,
                                 __NR_sethostname,
                                 __NR_setdomainname,
                                 __NR_quotactl,
                                 kQuotactlFd,
                                 __NR_syslog,
                                 __NR_personality,
                                 __NR_vhangup};

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif

bool IsKept(unsigned capability) {
  return std::ranges::any_of(kKept, [&](int kept) { return kept == static_cast<int>(capability); });
}

Status DropCapabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) return Status::FromErrno(errno, "capget");
  for (unsigned capability = 0; capability < 64; ++capability) {
    const std::uint32_t bit = 1U << (capability % 32);
    auto& set = sets[capability / 32];
    set.inheritable &= ~bit;
    if (IsKept(capability)) continue;
    set.effective &= ~bit;
    set.permitted &= ~bit;
    // Refused to who has no right to set it, and then has nothing of it.
    (void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (syscall(SYS_capset, &header, sets.data()) != 0) {
    return Status::FromErrno(errno, "cannot give up the capabilities that rdfsd does not need");
  }
  return {};
}

sock_filter Instruction(unsigned code, std::uint32_t value, std::size_t if_true = 0,
                        std::size_t if_false = 0) {
  return {.code = static_cast<std::uint16_t>(code),
          .jt = static_cast<std::uint8_t>(if_true),
          .jf = static_cast<std::uint8_t>(if_false),
          .k = value};
}

// Those of another architecture (i386 on x86_64) as well: their numbers mean something else. Of
// unshare(2) there is left what a loop does: a umask of its own (CLONE_FS); of clone(2) what makes
// no namespace. What clone3(2) is asked for stands in memory, which a filter cannot see: it is
// missing, and the C library makes its threads by clone(2) then.
std::vector<sock_filter> RefusingFilter() {
  constexpr unsigned kLoad = BPF_LD | BPF_W | BPF_ABS, kEqual = BPF_JMP | BPF_JEQ | BPF_K,
                     kAtLeast = BPF_JMP | BPF_JGE | BPF_K, kAnyBit = BPF_JMP | BPF_JSET | BPF_K,
                     kReturn = BPF_RET | BPF_K;
  constexpr std::uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                        CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  constexpr std::size_t kCalls = kRefused.size();
  constexpr std::uint32_t kX32 = 0x40000000;  // x86_64's numbers with this bit: 32-bit pointers
  std::vector<sock_filter> filter = {Instruction(kLoad, offsetof(seccomp_data, arch)),
                                     Instruction(kEqual, kArchitecture, 0, kCalls + 10),
                                     Instruction(kLoad, offsetof(seccomp_data, nr)),
                                     Instruction(kAtLeast, kX32, kCalls + 8, 0),
                                     Instruction(kEqual, __NR_clone3, kCalls + 8, 0),
                                     Instruction(kEqual, __NR_unshare, 0, 2),
                                     Instruction(kLoad, offsetof(seccomp_data, args)),
                                     Instruction(kEqual, CLONE_FS, kCalls + 3, kCalls + 4),
                                     Instruction(kEqual, __NR_clone, 0, 2),
                                     Instruction(kLoad, offsetof(seccomp_data, args)),
                                     Instruction(kAnyBit, kNamespaces, kCalls + 1, kCalls)};
  for (std::size_t i = 0; i < kCalls; ++i) {
    filter.push_back(Instruction(kEqual, static_cast<std::uint32_t>(kRefused[i]), kCalls - i, 0));
  }
  filter.push_back(Instruction(kReturn, SECCOMP_RET_ALLOW));
  filter.push_back(Instruction(kReturn, SECCOMP_RET_ERRNO | EPERM));
  filter.push_back(Instruction(kReturn, SECCOMP_RET_ERRNO | ENOSYS));
  return filter;
}

// 0, or the errno of the first that this kernel refused.
int RefuseCalls() {
  if (kArchitecture == 0) return ENOSYS;
  std::vector<sock_filter> filter = RefusingFilter();
  const sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                           .filter = filter.data()};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ? 0 : errno;
}

}  // namespace

Status Confine() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    LogInfo("this kernel cannot forbid new privileges: {}", std::strerror(errno));
  }
  RDFS_RETURN_IF_ERROR(DropCapabilities());
  if (const int error = RefuseCalls(); error != 0) {
    LogInfo("this kernel cannot refuse system calls: {}", std::strerror(error));
  }
  return {};
}

}  // namespace rdfs::server
