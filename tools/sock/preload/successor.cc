#include "tools/sock/preload/successor.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "transport/base/fd.h"

namespace rdfs::sock {
namespace {

constinit const char* g_library = nullptr;

// What the kernel looks at of a script, and how often one may be another's interpreter
// (include/uapi/linux/binfmts.h, exec_binprm() in fs/exec.c).
constexpr std::size_t kHead = 256;
constexpr int kMostScripts = 5;
using Head = std::array<char, kHead + 1>;  // ends with a zero

constexpr std::string_view kPreload = "LD_PRELOAD=";

bool Names(std::string_view list, std::string_view library) {
  for (;;) {
    const std::size_t end = list.find_first_of(" :");
    if (list.substr(0, end) == library) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

// The last of several counts, as for the dynamic linker.
bool IsPreloaded(char* const* variables) {
  // It may be out of reach since a chroot.
  if (g_library == nullptr || access(g_library, R_OK) != 0) return false;
  bool preloaded = false;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view variable = *variables;
    if (!variable.starts_with(kPreload)) continue;
    preloaded = Names(variable.substr(kPreload.size()), g_library);
  }
  return preloaded;
}

// The dynamic linker of a program that runs with more rights than who starts it has does not heed
// LD_PRELOAD (ld.so(8), "Secure-execution mode").
bool GivesRights(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return true;
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) return true;
  if (fgetxattr(fd, "security.capability", nullptr, 0) >= 0) return true;
  return errno != ENODATA && errno != ENOTSUP;
}

bool HasDynamicLinker(int fd) {
  Elf64_Ehdr header;
  if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    const auto at = static_cast<off_t>(header.e_phoff + i * sizeof(part));
    if (pread(fd, &part, sizeof(part), at) != sizeof(part)) return false;
    if (part.p_type == PT_INTERP) return true;
  }
  return false;
}

// The interpreter's name, of which the zero is written into `head`; null when it is no script.
const char* InterpreterOf(int fd, Head& head) {
  head.fill('\0');
  if (pread(fd, head.data(), kHead, 0) < 2 || head[0] != '#' || head[1] != '!') return nullptr;
  char* const name = head.data() + 2 + std::strspn(head.data() + 2, " \t");
  char* const end = name + std::strcspn(name, " \t\n");
  const bool whole = end != name && *end != '\0';
  *end = '\0';
  return whole ? name : nullptr;
}

bool LoadsLibraries(const char* path, int scripts = kMostScripts) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // it may be a pipe
  if (!fd.valid() || GivesRights(fd.get())) return false;
  Head head;
  const char* const interpreter = InterpreterOf(fd.get(), head);
  if (interpreter == nullptr) return HasDynamicLinker(fd.get());
  return scripts > 0 && LoadsLibraries(interpreter, scripts - 1);
}

// Which of several execvp takes depends on more than can be seen from here, so each of them has to.
bool AllInPathLoad(const char* file) {
  const char* folder = getenv("PATH");
  if (folder == nullptr) folder = "/bin:/usr/bin";
  for (bool found = false;; ++folder) {
    const auto length = static_cast<int>(std::strcspn(folder, ":"));
    std::array<char, PATH_MAX> path;
    const int size =
        snprintf(path.data(), path.size(), "%.*s%s%s", length, folder, length > 0 ? "/" : "", file);
    if (size < 0 || static_cast<std::size_t>(size) >= path.size()) return false;
    const bool here = access(path.data(), F_OK) == 0;
    if (here && !LoadsLibraries(path.data())) return false;
    found = found || here;
    folder += length;
    if (*folder == '\0') return found;
  }
}

}  // namespace

bool LoadsThisLibrary(const Successor& next) {
  if (next.file == nullptr || getuid() != geteuid() || getgid() != getegid()) return false;
  if (!IsPreloaded(next.variables)) return false;
  const bool searched = next.searched && std::strchr(next.file, '/') == nullptr;
  return searched ? AllInPathLoad(next.file) : LoadsLibraries(next.file);
}

void NoteThisLibrary() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&NoteThisLibrary), &info) != 0) {
    g_library = info.dli_fname;
  }
}

}  // namespace rdfs::sock
