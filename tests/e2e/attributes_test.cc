// Attributes: chmod, chown, times, truncate, statfs, access, xattrs, ACLs.
#include <dirent.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>

#include "tests/e2e/compare.h"

namespace rdfs::e2e {
namespace {

void Make(Transcript& t, const char* name, std::string_view content = "x", mode_t mode = 0644) {
  const int fd = t.Open(name, O_CREAT | O_WRONLY, mode);
  t.Call("write", write(fd, content.data(), content.size()));
  t.Close(fd);
}

void NoteTimes(Transcript& t, const char* name) {
  struct stat st {};
  t.Call("stat", fstatat(t.dir(), name, &st, AT_SYMLINK_NOFOLLOW));
  t.Note("atime", std::to_string(st.st_atim.tv_sec) + "." + std::to_string(st.st_atim.tv_nsec));
  t.Note("mtime", std::to_string(st.st_mtim.tv_sec) + "." + std::to_string(st.st_mtim.tv_nsec));
}

// What a listing has fetched ahead is older than what is done while it goes on.
TEST(Attributes, FromAListingAreNoOlderThanWhatWasDoneMeanwhile) {
  constexpr int kFiles = 500;  // with such names, several of the C library's buffers
  const auto name = [](int i) { return "d/" + std::string(200, 'n') + std::to_string(i); };
  Compare([&](Transcript& t) {
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    for (int i = 0; i < kFiles; ++i)
      close(openat(t.dir(), name(i).c_str(), O_CREAT | O_RDWR, 0644));
    const auto sizes = [&] {
      long long sum = 0;
      for (int i = 0; i < kFiles; ++i) {
        struct stat st {};
        if (fstatat(t.dir(), name(i).c_str(), &st, 0) == 0) sum += st.st_size;
      }
      return sum;
    };
    DIR* const listing = fdopendir(openat(t.dir(), "d", O_RDONLY | O_DIRECTORY));
    ASSERT_NE(listing, nullptr);
    t.Note("an entry", readdir(listing) != nullptr);
    t.Note("bytes before", sizes());
    for (int i = 0; i < kFiles; ++i) {
      const int fd = openat(t.dir(), name(i).c_str(), O_WRONLY);
      (void)!write(fd, "x", 1);
      close(fd);
    }
    while (readdir(listing) != nullptr) {
    }
    t.Note("bytes afterwards", sizes());
    closedir(listing);
  });
}

TEST(Attributes, Chmod) {
  Compare([](Transcript& t) {
    Make(t, "a");
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    for (const mode_t mode : {0U, 0777U, 0644U, 04755U, 02755U, 01644U, 07777U}) {
      t.Call("chmod", fchmodat(t.dir(), "a", mode, 0));
      t.Stat("a");
      t.Call("chmod", fchmodat(t.dir(), "d", mode | 0700U, 0));
      t.Stat("d");
    }
    t.Call("nothing", fchmodat(t.dir(), "nothing", 0644, 0));
    const int fd = t.Open("a", O_RDONLY);
    t.Call("fchmod", fchmod(fd, 0604));
    t.FStat("a", fd);
    t.Close(fd);
  });
}

// "later" when the directory's times have moved since the last look.
void NoteMoved(Transcript& t, std::string_view what, int fd, struct stat& before) {
  struct stat st {};
  t.Call("fstat", fstat(fd, &st));
  const auto later = [](const timespec& a, const timespec& b) {
    return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
  };
  t.Note(std::string(what) + " mtime", later(st.st_mtim, before.st_mtim) ? "later" : "as it was");
  t.Note(std::string(what) + " ctime", later(st.st_ctim, before.st_ctim) ? "later" : "as it was");
  t.Note(std::string(what) + " links", static_cast<long long>(st.st_nlink));
  t.Note(std::string(what) + " mode", static_cast<long long>(st.st_mode));
  before = st;
  usleep(20'000);  // more than the clock of any file system's times ticks
}

TEST(Attributes, OfADirectoryFollowEveryChangeInIt) {
  Compare([](Transcript& t) {
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    t.Call("mkdir", mkdirat(t.dir(), "other", 0755));
    const int fd = t.Open("d", O_RDONLY | O_DIRECTORY);
    const int other = t.Open("other", O_RDONLY | O_DIRECTORY);
    struct stat d {};
    struct stat o {};
    NoteMoved(t, "at first", fd, d);
    Make(t, "d/file");
    NoteMoved(t, "create", fd, d);
    t.Call("mkdir", mkdirat(fd, "sub", 0755));
    NoteMoved(t, "mkdir", fd, d);
    t.Call("symlink", symlinkat("x", fd, "symlink"));
    NoteMoved(t, "symlink", fd, d);
    t.Call("mknod", mknodat(fd, "fifo", S_IFIFO | 0600, 0));
    NoteMoved(t, "mknod", fd, d);
    t.Call("link", linkat(fd, "file", other, "link", 0));
    NoteMoved(t, "link, here", fd, d);
    NoteMoved(t, "link, there", other, o);
    t.Call("rename", renameat(fd, "file", other, "file"));
    NoteMoved(t, "rename, from", fd, d);
    NoteMoved(t, "rename, to", other, o);
    t.Call("chmod", fchmod(fd, 0700));
    NoteMoved(t, "chmod", fd, d);
    t.Call("unlink", unlinkat(fd, "fifo", 0));
    NoteMoved(t, "unlink", fd, d);
    t.Call("rename itself", renameat(t.dir(), "d", other, "moved"));
    NoteMoved(t, "moved", fd, d);
    NoteMoved(t, "moved, to", other, o);
    t.Call("unlink", unlinkat(fd, "symlink", 0));
    t.Call("rmdir", unlinkat(fd, "sub", AT_REMOVEDIR));
    NoteMoved(t, "rmdir in it", fd, d);
    t.Call("rmdir", unlinkat(other, "moved", AT_REMOVEDIR));
    NoteMoved(t, "removed", fd, d);
    t.Call("create in what is removed", openat(fd, "late", O_CREAT | O_WRONLY, 0644));
    t.Call("fsync of what is removed", fsync(fd));
    t.Close(fd);
    t.Close(other);
  });
}

TEST(Attributes, SetuidIsClearedByAWriteAndATruncate) {
  Compare([](Transcript& t) {
    for (const mode_t mode : {04755U, 02755U, 06755U, 02745U, 06777U}) {
      Make(t, "w");
      t.Call("chmod", fchmodat(t.dir(), "w", mode, 0));
      t.Stat("w");
      const int fd = t.Open("w", O_WRONLY);
      t.Call("write", write(fd, "y", 1));
      t.FStat("after a write", fd);
      t.Close(fd);
      t.Call("chmod", fchmodat(t.dir(), "w", mode, 0));
      t.Call("truncate", truncate(t.Path("w").c_str(), 0));
      t.Stat("w");
      t.Call("chmod", fchmodat(t.dir(), "w", mode, 0));
      t.Close(t.Open("w", O_WRONLY | O_TRUNC));
      t.Stat("w");
      t.Call("chmod", fchmodat(t.dir(), "w", mode, 0));
      t.Call("chown to nobody else", fchownat(t.dir(), "w", getuid(), getgid(), 0));
      t.Stat("w");
      t.Call("unlink", unlinkat(t.dir(), "w", 0));
    }
  });
}

// What `change` does with the file "w" as a user who is not root and not its owner: 0 or its errno.
int AsAnotherUser(const Transcript& t, const std::function<int(int dir)>& change) {
  constexpr uid_t kAnother = 65534;
  const pid_t child = fork();
  if (child == 0) {
    if (setgroups(0, nullptr) != 0 || setresgid(kAnother, kAnother, kAnother) != 0 ||
        setresuid(kAnother, kAnother, kAnother) != 0) {
      _exit(255);
    }
    _exit(change(t.dir()) < 0 ? errno : 0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Only root can become somebody else; a server that is root too must not keep what it could.
TEST(Attributes, SetuidIsClearedByAnotherUsersWrite) {
  if (getuid() != 0) return;
  const auto writes = [](int dir, int flags) {
    const int fd = openat(dir, "w", flags);
    return fd < 0 ? -1 : static_cast<int>(write(fd, "y", 1));
  };
  Compare([&](Transcript& t) {
    for (const mode_t mode : {04777U, 02777U, 06777U, 02767U}) {
      const auto after = [&](const char* what, const std::function<int(int)>& change) {
        Make(t, "w");
        t.Call("chmod", fchmodat(t.dir(), "w", mode, 0));
        t.Stat("w");
        t.Note(what, AsAnotherUser(t, change));
        t.Stat("w");
        t.Call("unlink", unlinkat(t.dir(), "w", 0));
      };
      after("a write", [&](int dir) { return writes(dir, O_WRONLY); });
      after("a write through the page cache", [&](int dir) { return writes(dir, O_RDWR); });
      after("a synchronous write", [&](int dir) { return writes(dir, O_WRONLY | O_SYNC); });
      after("an append", [&](int dir) { return writes(dir, O_WRONLY | O_APPEND); });
      after("a truncate", [&](int dir) { return ftruncate(openat(dir, "w", O_WRONLY), 0); });
      after("an open that truncates",
            [&](int dir) { return openat(dir, "w", O_WRONLY | O_TRUNC); });
    }
  });
}

// Who is neither the owner of the directory nor of the file removes and renames nothing in it.
TEST(Attributes, StickyDirectoriesKeepWhatIsOthers) {
  if (getuid() != 0) return;
  Compare([](Transcript& t) {
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    Make(t, "d/root's");
    Make(t, "d/another's");
    t.Call("chown", fchownat(t.dir(), "d/another's", 65534, 65534, 0));
    for (const mode_t mode : {01777U, 0777U}) {
      t.Call("chmod", fchmodat(t.dir(), "d", mode, 0));
      const auto as_another = [&](const char* what, const std::function<int(int)>& change) {
        t.Note(what, AsAnotherUser(t, change));
        t.List("d");
      };
      as_another("rename", [](int dir) { return renameat(dir, "d/root's", dir, "d/new"); });
      as_another("rename over",
                 [](int dir) { return renameat(dir, "d/another's", dir, "d/root's"); });
      as_another("rename of one's own",
                 [](int dir) { return renameat(dir, "d/another's", dir, "d/mine"); });
      as_another("unlink", [](int dir) { return unlinkat(dir, "d/root's", 0); });
      as_another("unlink of one's own", [](int dir) { return unlinkat(dir, "d/mine", 0); });
      as_another("create", [](int dir) { return mknodat(dir, "d/another's", S_IFREG | 0644, 0); });
    }
  });
}

TEST(Attributes, SetgidDirectoriesHandTheirGroupDown) {
  Compare([](Transcript& t) {
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    t.Call("chmod", fchmodat(t.dir(), "d", 02775, 0));
    Make(t, "d/file");
    t.Call("mkdir", mkdirat(t.dir(), "d/sub", 0755));
    t.Stat("d/file");
    t.Stat("d/sub");
  });
}

// As root only: anybody else may not.
TEST(Attributes, ChownToOthers) {
  Compare([](Transcript& t) {
    Make(t, "a");
    t.Call("mkdir", mkdirat(t.dir(), "d", 0777));
    t.Call("chmod", fchmodat(t.dir(), "a", 06755, 0));
    t.Call("owner", fchownat(t.dir(), "a", 12345, static_cast<gid_t>(-1), 0));
    t.Stat("a");
    t.Call("chmod", fchmodat(t.dir(), "a", 06755, 0));
    t.Call("group", fchownat(t.dir(), "a", static_cast<uid_t>(-1), 54321, 0));
    t.Stat("a");
    t.Call("a directory", fchownat(t.dir(), "d", 12345, 54321, 0));
    t.Stat("d");
    t.Call("an open file", fchown(t.Open("a", O_RDONLY), 1, 2));
    t.Stat("a");
  });
}

TEST(Attributes, Chown) {
  Compare([](Transcript& t) {
    Make(t, "a");
    t.Call("symlink", symlinkat("a", t.dir(), "link"));
    t.Call("same", fchownat(t.dir(), "a", getuid(), getgid(), 0));
    t.Call("unchanged", fchownat(t.dir(), "a", static_cast<uid_t>(-1), static_cast<gid_t>(-1), 0));
    if (getuid() != 0) t.Call("to root", fchownat(t.dir(), "a", 0, 0, 0));
    t.Call("the link", fchownat(t.dir(), "link", getuid(), getgid(), AT_SYMLINK_NOFOLLOW));
    t.Stat("a");
    t.Stat("link");
  });
}

TEST(Attributes, Times) {
  Compare([](Transcript& t) {
    Make(t, "a");
    t.Call("symlink", symlinkat("a", t.dir(), "link"));
    const std::array<std::array<timespec, 2>, 5> values{{
        {{{1, 1}, {2, 999999999}}},
        {{{0, 0}, {0, 0}}},
        {{{-1000000, 5}, {-1, 999999999}}},
        {{{4102444800, 123456789}, {5000000000, 1}}},
        {{{0, UTIME_OMIT}, {7, 7}}},
    }};
    for (const auto& times : values) {
      t.Call("utimensat", utimensat(t.dir(), "a", times.data(), 0));
      NoteTimes(t, "a");
      t.Call("of the link", utimensat(t.dir(), "link", times.data(), AT_SYMLINK_NOFOLLOW));
      NoteTimes(t, "link");
    }
    const std::array<timespec, 2> now{{{0, UTIME_NOW}, {0, UTIME_OMIT}}};
    t.Call("now", utimensat(t.dir(), "a", now.data(), 0));
    struct stat st {};
    t.Call("stat", fstatat(t.dir(), "a", &st, 0));
    t.Note("now is later than 2020", st.st_atim.tv_sec > 1577836800 ? "yes" : "no");
    t.Note("mtime kept", static_cast<long long>(st.st_mtim.tv_sec));
    const std::array<timespec, 2> wrong{{{0, 1000000000}, {0, 0}}};
    t.Call("wrong", utimensat(t.dir(), "a", wrong.data(), 0));
    const int fd = t.Open("a", O_RDONLY);
    t.Call("futimens", futimens(fd, values[0].data()));
    t.Close(fd);
    NoteTimes(t, "a");
  });
}

TEST(Attributes, AWriteMovesMtimeAndCtime) {
  Compare([](Transcript& t) {
    Make(t, "a");
    const std::array<timespec, 2> past{{{1, 0}, {1, 0}}};
    t.Call("past", utimensat(t.dir(), "a", past.data(), 0));
    const int fd = t.Open("a", O_WRONLY);
    t.Call("write", write(fd, "z", 1));
    struct stat st {};
    t.Call("fstat", fstat(fd, &st));
    t.Note("mtime moved", st.st_mtim.tv_sec > 1 ? "yes" : "no");
    t.Close(fd);
    t.Call("stat", fstatat(t.dir(), "a", &st, 0));
    t.Note("mtime moved after close", st.st_mtim.tv_sec > 1 ? "yes" : "no");
    t.Note("atime left", static_cast<long long>(st.st_atim.tv_sec));
  });
}

TEST(Attributes, Truncate) {
  Compare([](Transcript& t) {
    Make(t, "a", "0123456789");
    const std::string path = t.Path("a");
    for (const off_t size : {5L, 0L, 3L, 4096L, 4097L, 100000L, 1L}) {
      t.Call("truncate", truncate(path.c_str(), size));
      t.Content("a");
    }
    t.Call("negative", truncate(path.c_str(), -1));
    t.Call("nothing", truncate(t.Path("x").c_str(), 1));
    t.Call("a directory", truncate(t.Path(".").c_str(), 1));
    int fd = t.Open("a", O_RDONLY);
    t.Call("read-only", ftruncate(fd, 1));
    t.Close(fd);
    fd = t.Open("a", O_RDWR);
    t.Call("write", write(fd, "abcdef", 6));
    t.Call("ftruncate", ftruncate(fd, 2));
    t.Call("write behind the end", write(fd, "z", 1));
    t.Close(fd);
    t.Content("a");
    t.Call("large", truncate(path.c_str(), (5LL << 30) + 1));
    t.Stat("a");
  });
}

TEST(Attributes, Access) {
  Compare([](Transcript& t) {
    for (const mode_t mode : {0U, 0400U, 0200U, 0100U, 0750U, 0007U}) {
      const std::string name = "m" + std::to_string(mode);
      Make(t, name.c_str());
      t.Call("chmod", fchmodat(t.dir(), name.c_str(), mode, 0));
      for (const int how : {F_OK, R_OK, W_OK, X_OK, R_OK | W_OK, R_OK | X_OK}) {
        t.Call("access", faccessat(t.dir(), name.c_str(), how, 0));
      }
      t.Open(name.c_str(), O_RDONLY);
      t.Open(name.c_str(), O_WRONLY);
    }
    t.Call("mkdir", mkdirat(t.dir(), "closed", 0755));
    Make(t, "closed/inside");
    t.Call("chmod", fchmodat(t.dir(), "closed", 0, 0));
    t.Stat("closed/inside");
    t.List("closed");
    t.Call("create in it", openat(t.dir(), "closed/new", O_CREAT | O_WRONLY, 0644) < 0 ? -1 : 0);
    t.Call("chmod", fchmodat(t.dir(), "closed", 0500, 0));
    t.List("closed");
    t.Call("unlink in it", unlinkat(t.dir(), "closed/inside", 0));
    t.Call("chmod", fchmodat(t.dir(), "closed", 0700, 0));
  });
}

TEST(Attributes, StatFs) {
  Compare([](Transcript& t) {
    struct statvfs st {};
    t.Call("statvfs", fstatvfs(t.dir(), &st));
    t.Note("name_max", static_cast<long long>(st.f_namemax));
    t.Note("has blocks", st.f_blocks > 0 && st.f_bavail <= st.f_blocks ? "yes" : "no");
    t.Note("block size", static_cast<long long>(st.f_bsize));
  });
}

TEST(Attributes, UserXattrs) {
  Compare([](Transcript& t) {
    Make(t, "a");
    const std::string path = t.Path("a");
    const char* file = path.c_str();
    std::string value(70000, 'v');
    t.Call("none yet", listxattr(file, value.data(), value.size()));
    t.Call("get nothing", getxattr(file, "user.a", value.data(), value.size()));
    t.Call("set", setxattr(file, "user.a", "one", 3, 0));
    t.Call("create again", setxattr(file, "user.a", "two", 3, XATTR_CREATE));
    t.Call("replace", setxattr(file, "user.a", "three", 5, XATTR_REPLACE));
    t.Call("replace nothing", setxattr(file, "user.b", "x", 1, XATTR_REPLACE));
    t.Call("empty value", setxattr(file, "user.empty", "", 0, 0));
    t.Call("size", getxattr(file, "user.a", nullptr, 0));
    t.Call("too small", getxattr(file, "user.a", value.data(), 2));
    t.Call("get", getxattr(file, "user.a", value.data(), value.size()));
    t.Note("value", value.substr(0, 5));
    t.Call("get empty", getxattr(file, "user.empty", value.data(), value.size()));
    t.Call("list size", listxattr(file, nullptr, 0));
    t.Call("list too small", listxattr(file, value.data(), 3));
    t.Call("remove", removexattr(file, "user.a"));
    t.Call("remove again", removexattr(file, "user.a"));
    t.Call("no namespace", setxattr(file, "plain", "x", 1, 0));
    t.Call("long name", setxattr(file, ("user." + std::string(251, 'n')).c_str(), "x", 1, 0));
    t.Call("2 KiB", setxattr(file, "user.big", value.data(), 2048, 0));
    t.Call("above the bound", setxattr(file, "user.big", value.data(), 65537, 0));
    t.Call("binary", setxattr(file, "user.bin", "\0\xff\0", 3, 0));
    t.Call("binary back", getxattr(file, "user.bin", value.data(), value.size()));
    t.Note("binary", std::string_view(value.data(), 3));
    const int fd = t.Open("a", O_RDONLY);
    t.Call("fset", fsetxattr(fd, "user.f", "x", 1, 0));
    t.Call("fget", fgetxattr(fd, "user.f", value.data(), value.size()));
    t.Close(fd);
    t.Call("symlink", symlinkat("a", t.dir(), "link"));
    const std::string link = t.Path("link");
    t.Call("on a symlink", lsetxattr(link.c_str(), "user.x", "x", 1, 0));
    t.Call("list of a symlink", llistxattr(link.c_str(), value.data(), value.size()));
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    t.Call("on a directory", setxattr(t.Path("d").c_str(), "user.d", "x", 1, 0));
    t.Call("back", getxattr(t.Path("d").c_str(), "user.d", value.data(), value.size()));
  });
}

// POSIX ACLs as xattrs (acl(5), linux/posix_acl_xattr.h): version 2, then tag, permissions, id.
std::string Acl(std::initializer_list<std::array<std::uint32_t, 3>> entries) {
  std::string out("\x02\0\0\0", 4);
  for (const auto& [tag, permissions, id] : entries) {
    for (const std::uint32_t half : {tag, permissions}) {
      out += static_cast<char>(half & 0xffU);
      out += static_cast<char>(half >> 8U);
    }
    for (unsigned shift = 0; shift < 32; shift += 8) {
      out += static_cast<char>((id >> shift) & 0xffU);
    }
  }
  return out;
}
constexpr std::uint32_t kNobody = 65534;
constexpr std::uint32_t kNoId = 0xffffffff;

TEST(Attributes, PosixAcls) {
  Compare([](Transcript& t) {
    Make(t, "a", "x", 0640);
    const std::string path = t.Path("a");
    const std::string acl =
        Acl({{1, 6, kNoId}, {2, 4, kNobody}, {4, 4, kNoId}, {16, 4, kNoId}, {32, 0, kNoId}});
    t.Call("set", setxattr(path.c_str(), "system.posix_acl_access", acl.data(), acl.size(), 0));
    t.Stat("a");
    std::string value(256, '\0');
    const auto got = t.Call(
        "get", getxattr(path.c_str(), "system.posix_acl_access", value.data(), value.size()));
    if (got > 0) t.Note("acl", value.substr(0, static_cast<std::size_t>(got)));
    t.Call("malformed", setxattr(path.c_str(), "system.posix_acl_access", "xx", 2, 0));
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    const std::string dir = t.Path("d");
    const std::string inherited =
        Acl({{1, 7, kNoId}, {2, 7, kNobody}, {4, 5, kNoId}, {16, 7, kNoId}, {32, 0, kNoId}});
    t.Call("default", setxattr(dir.c_str(), "system.posix_acl_default", inherited.data(),
                               inherited.size(), 0));
    Make(t, "d/file", "x", 0666);
    t.Call("mkdir", mkdirat(t.dir(), "d/sub", 0777));
    t.Stat("d/file");
    t.Stat("d/sub");
    t.Call("inherited", getxattr((dir + "/sub").c_str(), "system.posix_acl_default", value.data(),
                                 value.size()));
    t.Call("on the file", getxattr((dir + "/file").c_str(), "system.posix_acl_access", value.data(),
                                   value.size()));
    t.Call("default of a file",
           setxattr(path.c_str(), "system.posix_acl_default", acl.data(), acl.size(), 0));
    t.Call("chmod", fchmodat(t.dir(), "a", 0600, 0));
    t.Call("acl after chmod",
           getxattr(path.c_str(), "system.posix_acl_access", value.data(), value.size()));
    t.Call("remove", removexattr(path.c_str(), "system.posix_acl_access"));
    t.Call("none", getxattr(path.c_str(), "system.posix_acl_access", value.data(), value.size()));
  });
}

}  // namespace
}  // namespace rdfs::e2e
