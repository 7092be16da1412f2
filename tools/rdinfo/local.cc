#include "tools/rdinfo/local.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <link.h>
#include <openssl/crypto.h>
#include <sodium.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "tools/rdinfo/firewall.h"
#include "transport/base/fd.h"
#include "transport/base/search_path.h"

namespace rdfs::rdinfo {
namespace {

// The first of `files` that the loader finds. Not every library tells its version: each one's file
// is named after it.
Fact Library(const char* name, std::initializer_list<const char*> files) {
  for (const char* file : files) {
    void* const library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) continue;
    std::string version = "there";
    link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) {
      std::error_code error;
      const auto path = std::filesystem::canonical(map->l_name, error);
      if (!error) version = LibraryVersion(path.filename().string());
    }
    dlclose(library);
    return {name, version, true, ""};
  }
  return {name, "not there", true, ""};
}

Section Kernel() {
  Section section{"system", {}};
  utsname name{};
  if (uname(&name) == 0) {
    section.facts.push_back({"kernel", fmt::format("{} {}", name.sysname, name.release), true, ""});
    section.facts.push_back({"host", name.nodename, true, ""});
  }
  section.facts.push_back({"rdfs", RDFS_VERSION, true, ""});
  section.facts.push_back({"OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING), true, ""});
  section.facts.push_back({"libsodium", sodium_version_string(), true, ""});
  section.facts.push_back(Library("libfuse", {"libfuse3.so.4", "libfuse3.so.3"}));
  section.facts.push_back(Library("libibverbs", {"libibverbs.so.1"}));
  section.facts.push_back(Library("librdmacm", {"librdmacm.so.1"}));
  return section;
}

Fact FuseDevice() {
  const Fd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (device.valid()) return {"/dev/fuse", "there, and may be opened", true, ""};
  if (errno == ENOENT) {
    return {"/dev/fuse", "not there", false,
            "as root: modprobe fuse (in a container: start it with --device /dev/fuse)"};
  }
  return {"/dev/fuse", std::strerror(errno), false,
          "as root: chmod 666 /dev/fuse (the package fuse3 does it at boot)"};
}

Fact Fusermount() {
  const std::string found = FindProgram("fusermount3", SearchPath());
  if (!found.empty()) return {"fusermount3", found, true, ""};
  const bool root = geteuid() == 0;  // who mounts without it
  return {"fusermount3", "not in the PATH", root,
          "install the package fuse3, and have its folder, /usr/bin, in the PATH",
          root ? Weight::kNote : Weight::kStops};
}

Fact AllowOther() {
  if (HasLine(ReadFile("/etc/fuse.conf"), "user_allow_other")) {
    return {"user_allow_other", "set", true, ""};
  }
  if (geteuid() == 0) return {"user_allow_other", "not set, which root does not need", true, ""};
  return {"user_allow_other", "not set", true,
          "only for -o allow_other as an ordinary user: a line user_allow_other in /etc/fuse.conf",
          Weight::kNote};
}

Section Fuse() {
  Section section{"FUSE", {FuseDevice(), Fusermount()}};
  const std::string pages = FirstLine("/proc/sys/fs/fuse/max_pages_limit");
  if (!pages.empty()) {
    section.facts.push_back({"largest request", pages + " pages", true, ""});
  }
  section.facts.push_back(AllowOther());
  return section;
}

Fact ClockDiscipline() {
  timex state{};  // modes 0: only asks
  const int told = adjtimex(&state);
  if (told < 0) return {"clock", "cannot be asked about", true, ""};
  if (told != TIME_ERROR) return {"clock", "kept by NTP", true, ""};
  return {"clock", "not kept by NTP, as far as the kernel knows", true,
          "as root: timedatectl set-ntp true (the package systemd-timesyncd or chrony), so that "
          "files have the same times on all hosts",
          Weight::kNote};
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string FirstLine(const std::string& path) {
  const std::string text = ReadFile(path);
  return text.substr(0, text.find('\n'));
}

std::string FindField(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view name = line.substr(0, colon);
    while (!name.empty() && (name.back() == ' ' || name.back() == '\t')) name.remove_suffix(1);
    if (name != key) continue;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
      value.remove_prefix(1);
    return std::string(value);
  }
  return "";
}

std::string LibraryVersion(std::string_view file) {
  constexpr std::string_view kBefore = ".so.";
  const std::size_t at = file.find(kBefore);
  return std::string(at == std::string_view::npos ? file : file.substr(at + kBefore.size()));
}

bool HasLine(std::string_view text, std::string_view word) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (line == word) return true;
  }
  return false;
}

std::vector<Section> DescribeMachine() {
  const std::string model = FindField(ReadFile("/proc/cpuinfo"), "model name");
  const std::string memory = FindField(ReadFile("/proc/meminfo"), "MemTotal");
  Section system = Kernel();
  if (!model.empty()) system.facts.push_back({"processor", model, true, ""});
  if (!memory.empty()) system.facts.push_back({"memory", memory, true, ""});
  system.facts.push_back(ClockDiscipline());
  system.facts.push_back(Firewall());
  return {std::move(system), Fuse(), DescribeRdma()};
}

}  // namespace rdfs::rdinfo
