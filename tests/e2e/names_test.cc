// Names: lookup, create, link, rename, unlink, directories, symlinks, special files.
#include <dirent.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <set>
#include <utility>

#include "tests/e2e/compare.h"

namespace rdfs::e2e {
namespace {

void Touch(Transcript& t, const char* name, std::string_view content = "", mode_t mode = 0644) {
  const int fd = t.Open(name, O_CREAT | O_WRONLY, mode);
  if (!content.empty()) t.Call("write", write(fd, content.data(), content.size()));
  t.Close(fd);
}

TEST(Names, AListingHasWhatWasMadeAfterTheDirectoryWasOpened) {
  Compare([](Transcript& t) {
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    const int early = t.Open("d/early", O_CREAT | O_RDWR);
    const int directory = t.Open("d", O_RDONLY | O_DIRECTORY);
    const int late = t.Open("d/late", O_CREAT | O_RDWR);
    t.Call("unlink", unlinkat(directory, "early", 0));
    std::vector<std::string> names;
    DIR* const listing = fdopendir(directory);
    ASSERT_NE(listing, nullptr);
    while (const dirent* entry = readdir(listing)) names.emplace_back(entry->d_name);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) t.Note("listed", name);
    closedir(listing);
    t.Close(early);
    t.Close(late);
  });
}

// The kernel does not say which of them goes on.
TEST(Names, SeveralListTheSameDirectoryAtOnce) {
  Compare([](Transcript& t) {
    constexpr int kFiles = 1500;  // more than a page of the server's
    for (int i = 0; i < kFiles; ++i) Touch(t, ("f" + std::to_string(i)).c_str());
    struct Program {
      DIR* listing;
      std::size_t at_once;
      std::set<std::string> names{};
      bool more = true;
    };
    std::vector<Program> programs;
    for (const std::size_t at_once : {1U, 7U, 100U, 1000U}) {
      programs.push_back({fdopendir(openat(t.dir(), ".", O_RDONLY | O_DIRECTORY)), at_once});
    }
    for (bool any = true; std::exchange(any, false);) {
      for (Program& program : programs) {
        for (std::size_t i = 0; program.more && i < program.at_once; ++i) {
          const dirent* entry = readdir(program.listing);
          program.more = entry != nullptr;
          if (!program.more) break;
          EXPECT_TRUE(program.names.insert(entry->d_name).second) << entry->d_name;
        }
        any |= program.more;
      }
    }
    for (const Program& program : programs) {
      t.Note("names", static_cast<long long>(program.names.size()));
      closedir(program.listing);
    }
  });
}

TEST(Names, CreateFlags) {
  Compare([](Transcript& t) {
    t.Open("missing", O_RDONLY);
    Touch(t, "a", "hello");
    t.Open("a", O_CREAT | O_EXCL | O_WRONLY);
    t.Open("a/b", O_CREAT | O_WRONLY);
    t.Open("a", O_RDONLY | O_DIRECTORY);
    t.Open(".", O_WRONLY);
    t.Open(".", O_CREAT | O_RDONLY);
    t.Open("", O_RDONLY);
    int fd = t.Open("a", O_WRONLY | O_TRUNC);
    t.FStat("truncated", fd);
    t.Close(fd);
    for (const mode_t mode : {0U, 0400U, 0200U, 0777U, 01777U, 04755U, 02755U, 06711U}) {
      const std::string name = "mode" + std::to_string(mode);
      fd = t.Open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, mode);
      t.Call("write to a file created with any mode", write(fd, "x", 1));
      t.FStat("created", fd);
      t.Close(fd);
    }
    const mode_t old = umask(077);
    Touch(t, "private", "", 0666);
    t.Call("mkdir", mkdirat(t.dir(), "private-dir", 0777));
    umask(old);
    t.Stat("private");
    t.Stat("private-dir");
  });
}

TEST(Names, OddNames) {
  Compare([](Transcript& t) {
    const std::string longest(255, 'n');
    Touch(t, longest.c_str(), "long");
    t.Content(longest.c_str());
    t.Open((longest + "n").c_str(), O_CREAT | O_WRONLY);
    for (const char* name : {"with space", "-n", "new\nline", "\xff\xfe not utf-8", "'quoted\"",
                             "$()", "...", " ", "\x01", "*?[", "back\\slash", "tab\t"}) {
      Touch(t, name, name);
      t.Content(name);
    }
    t.List(".");
    for (int i = 0; i < 300; ++i) Touch(t, ("f" + std::to_string(i)).c_str());
    t.List(".");
  });
}

TEST(Names, PlacesInADirectoryAreComeBackTo) {
  Compare([](Transcript& t) {
    constexpr int kFiles = 500;  // several pages of the kernel's
    for (int i = 0; i < kFiles; ++i) Touch(t, ("f" + std::to_string(i)).c_str());
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(
        fdopendir(openat(t.dir(), ".", O_RDONLY | O_DIRECTORY)), closedir);
    ASSERT_NE(listing, nullptr);
    std::vector<std::string> names;
    std::vector<long> places;
    for (;;) {
      places.push_back(telldir(listing.get()));
      const dirent* entry = readdir(listing.get());
      if (entry == nullptr) break;
      names.emplace_back(entry->d_name);
    }
    t.Note("entries", static_cast<long long>(names.size()));
    for (const std::size_t at : {names.size() / 2, std::size_t{0}, names.size() - 1, names.size(),
                                 std::size_t{1}, names.size() / 3}) {
      seekdir(listing.get(), places[at]);
      const dirent* entry = readdir(listing.get());
      const std::string found = entry == nullptr ? "" : entry->d_name;
      t.Note("the same as before", found == (at < names.size() ? names[at] : ""));
    }
    rewinddir(listing.get());
    Touch(t, "another");
    long long after = 0;
    while (readdir(listing.get()) != nullptr) ++after;
    // POSIX leaves it open whether what is made after rewinddir is seen.
    t.Note("all of them again", after >= static_cast<long long>(names.size()));
  });
}

TEST(Names, Directories) {
  Compare([](Transcript& t) {
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    t.Call("mkdir again", mkdirat(t.dir(), "d", 0755));
    t.Call("mkdir deep", mkdirat(t.dir(), "d/e", 0700));
    t.Call("mkdir below nothing", mkdirat(t.dir(), "x/y", 0700));
    Touch(t, "d/e/f", "1");
    t.Call("rmdir full", unlinkat(t.dir(), "d", AT_REMOVEDIR));
    t.Call("unlink a directory", unlinkat(t.dir(), "d/e", 0));
    t.Call("rmdir a file", unlinkat(t.dir(), "d/e/f", AT_REMOVEDIR));
    t.Call("rmdir .", unlinkat(t.dir(), "d/.", AT_REMOVEDIR));
    t.Call("rmdir ..", unlinkat(t.dir(), "d/e/..", AT_REMOVEDIR));
    struct stat st {};
    t.Call("stat", fstatat(t.dir(), "d", &st, 0));
    t.Note("links of a directory with one directory", static_cast<long long>(st.st_nlink));
    t.List("d");
    t.List("d/e");
    t.Call("unlink", unlinkat(t.dir(), "d/e/f", 0));
    t.Call("rmdir", unlinkat(t.dir(), "d/e", AT_REMOVEDIR));
    t.Call("rmdir", unlinkat(t.dir(), "d", AT_REMOVEDIR));
    t.Call("rmdir nothing", unlinkat(t.dir(), "d", AT_REMOVEDIR));
    t.List(".");
  });
}

TEST(Names, ADirectoryRemovedWhileOpenIsEmpty) {
  Compare([](Transcript& t) {
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    const int fd = t.Open("d", O_RDONLY | O_DIRECTORY);
    t.Call("rmdir", unlinkat(t.dir(), "d", AT_REMOVEDIR));
    t.Call("create in it", openat(fd, "x", O_CREAT | O_WRONLY, 0644));
    t.Close(fd);
  });
}

TEST(Names, HardLinks) {
  Compare([](Transcript& t) {
    Touch(t, "a", "content");
    t.Call("link", linkat(t.dir(), "a", t.dir(), "b", 0));
    t.Call("link onto itself", linkat(t.dir(), "a", t.dir(), "b", 0));
    t.Call("link nothing", linkat(t.dir(), "nothing", t.dir(), "c", 0));
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    t.Call("link a directory", linkat(t.dir(), "d", t.dir(), "e", 0));
    t.Call("link into", linkat(t.dir(), "a", t.dir(), "d/c", 0));
    struct stat first {};
    struct stat second {};
    t.Call("stat", fstatat(t.dir(), "a", &first, 0));
    t.Call("stat", fstatat(t.dir(), "d/c", &second, 0));
    t.Note("one inode number", first.st_ino == second.st_ino ? "yes" : "no");
    t.Stat("a");
    t.Call("unlink", unlinkat(t.dir(), "a", 0));
    t.Stat("b");
    t.Content("d/c");
    const int fd = t.Open("b", O_RDWR);
    t.Call("write", write(fd, "CON", 3));
    t.Close(fd);
    t.Content("d/c");
  });
}

TEST(Names, Symlinks) {
  Compare([](Transcript& t) {
    const std::string longest(4095, 'x');
    Touch(t, "target", "content");
    t.Call("symlink", symlinkat("target", t.dir(), "relative"));
    t.Call("symlink", symlinkat("/nowhere/at all", t.dir(), "dangling"));
    t.Call("symlink", symlinkat("loop", t.dir(), "loop"));
    t.Call("symlink again", symlinkat("x", t.dir(), "relative"));
    t.Call("symlink to nothing", symlinkat("", t.dir(), "empty"));
    t.Call("longest", symlinkat(longest.c_str(), t.dir(), "longest"));
    t.Call("too long", symlinkat((longest + "x").c_str(), t.dir(), "toolong"));
    std::string buffer(5000, '\0');
    for (const char* name : {"relative", "dangling", "loop", "longest", "target", "nothing"}) {
      t.Call(name, readlinkat(t.dir(), name, buffer.data(), buffer.size()));
      t.Stat(name);
    }
    t.Call("short buffer", readlinkat(t.dir(), "dangling", buffer.data(), 3));
    t.Content("relative");
    t.Content("dangling");
    t.Content("loop");
    t.Open("relative", O_RDONLY | O_NOFOLLOW);
    t.Open("dangling", O_CREAT | O_WRONLY | O_EXCL);
    t.Call("chmod through", fchmodat(t.dir(), "relative", 0600, 0));
    t.Stat("target");
    t.Call("link of a symlink", linkat(t.dir(), "dangling", t.dir(), "hard", 0));
    t.Stat("hard");
  });
}

TEST(Names, Rename) {
  Compare([](Transcript& t) {
    Touch(t, "a", "a");
    Touch(t, "b", "bb");
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    t.Call("mkdir", mkdirat(t.dir(), "d/sub", 0755));
    t.Call("mkdir", mkdirat(t.dir(), "empty", 0755));
    t.Call("over a file", renameat(t.dir(), "a", t.dir(), "b"));
    t.Content("b");
    t.Call("nothing", renameat(t.dir(), "a", t.dir(), "c"));
    t.Call("onto itself", renameat(t.dir(), "b", t.dir(), "b"));
    t.Call("file over a directory", renameat(t.dir(), "b", t.dir(), "d"));
    t.Call("directory over a file", renameat(t.dir(), "d", t.dir(), "b"));
    t.Call("into itself", renameat(t.dir(), "d", t.dir(), "d/sub/x"));
    t.Call("over a full directory", renameat(t.dir(), "empty", t.dir(), "d"));
    t.Call("over an empty one", renameat(t.dir(), "d", t.dir(), "empty"));
    t.Call("into", renameat(t.dir(), "b", t.dir(), "empty/sub/moved"));
    t.List(".");
    t.List("empty");
    t.Content("empty/sub/moved");
    t.Call("link", linkat(t.dir(), "empty/sub/moved", t.dir(), "twin", 0));
    t.Call("twins", renameat(t.dir(), "empty/sub/moved", t.dir(), "twin"));
    t.List("empty/sub");
  });
}

TEST(Names, RenameFlags) {
  Compare([](Transcript& t) {
    Touch(t, "a", "a");
    Touch(t, "b", "bb");
    t.Call("mkdir", mkdirat(t.dir(), "d", 0755));
    t.Call("noreplace", renameat2(t.dir(), "a", t.dir(), "b", RENAME_NOREPLACE));
    t.Call("noreplace new", renameat2(t.dir(), "a", t.dir(), "c", RENAME_NOREPLACE));
    t.Call("exchange", renameat2(t.dir(), "b", t.dir(), "c", RENAME_EXCHANGE));
    t.Content("b");
    t.Content("c");
    t.Call("exchange with a directory", renameat2(t.dir(), "b", t.dir(), "d", RENAME_EXCHANGE));
    t.Stat("b");
    t.Stat("d");
    t.Call("exchange with nothing", renameat2(t.dir(), "b", t.dir(), "x", RENAME_EXCHANGE));
    t.Call("both", renameat2(t.dir(), "b", t.dir(), "c", RENAME_EXCHANGE | RENAME_NOREPLACE));
    t.Call("unknown", renameat2(t.dir(), "b", t.dir(), "c", 1U << 20U));
  });
}

TEST(Names, RenameThatLeavesAWhiteout) {
  Compare([](Transcript& t) {
    Touch(t, "a", "a");
    Touch(t, "b", "bb");
    t.Call("whiteout", renameat2(t.dir(), "a", t.dir(), "c", RENAME_WHITEOUT));
    for (const char* name : {"a", "c"}) t.Stat(name);
    t.Call("over another", renameat2(t.dir(), "c", t.dir(), "b", RENAME_WHITEOUT));
    for (const char* name : {"a", "b", "c"}) t.Stat(name);
    t.Content("b");
    t.Call("and exchange",
           renameat2(t.dir(), "b", t.dir(), "c", RENAME_WHITEOUT | RENAME_EXCHANGE));
    t.List(".");
  });
}

// As root there are two of them, and else an errno. Nobody opens them: a mount may have no devices.
TEST(Names, Devices) {
  Compare([](Transcript& t) {
    t.Call("character", mknodat(t.dir(), "null", S_IFCHR | 0640, makedev(1, 3)));
    t.Call("block", mknodat(t.dir(), "loop", S_IFBLK | 0600, makedev(7, 300)));
    t.Call("again", mknodat(t.dir(), "null", S_IFCHR | 0640, makedev(1, 5)));
    for (const char* name : {"null", "loop"}) t.Stat(name);
    t.List(".");
    t.Call("rename", renameat(t.dir(), "null", t.dir(), "moved"));
    t.Stat("moved");
  });
}

TEST(Names, SpecialFiles) {
  Compare([](Transcript& t) {
    t.Call("fifo", mknodat(t.dir(), "fifo", S_IFIFO | 0640, 0));
    t.Call("socket", mknodat(t.dir(), "socket", S_IFSOCK | 0600, 0));
    t.Call("regular", mknodat(t.dir(), "regular", S_IFREG | 0604, 0));
    t.Call("regular again", mknodat(t.dir(), "regular", S_IFREG | 0604, 0));
    for (const char* name : {"fifo", "socket", "regular"}) t.Stat(name);
    t.Open("fifo", O_WRONLY | O_NONBLOCK);
    t.Open("socket", O_RDONLY);
    const int reader = t.Open("fifo", O_RDONLY | O_NONBLOCK);
    const int writer = t.Open("fifo", O_WRONLY | O_NONBLOCK);
    t.Call("write to a fifo", write(writer, "through", 7));
    std::string buffer(16, '\0');
    t.Call("read from a fifo", read(reader, buffer.data(), buffer.size()));
    t.Close(reader);
    t.Close(writer);
    t.List(".");
    t.Call("unlink", unlinkat(t.dir(), "fifo", 0));
  });
}

TEST(Names, UnlinkedButOpenStaysUsable) {
  Compare([](Transcript& t) {
    const int fd = t.Open("a", O_CREAT | O_RDWR);
    t.Call("write", write(fd, "before", 6));
    t.Call("unlink", unlinkat(t.dir(), "a", 0));
    t.Stat("a");
    t.List(".");
    t.Call("write", write(fd, " after", 6));
    std::string buffer(32, '\0');
    t.Call("pread", pread(fd, buffer.data(), buffer.size(), 0));
    t.Note("content", buffer.c_str());
    t.Call("truncate", ftruncate(fd, 3));
    t.Call("chmod", fchmod(fd, 0600));
    t.FStat("unlinked", fd);
    t.Call("fsync", fsync(fd));
    t.Close(fd);
  });
}

TEST(Names, ReplacedWhileOpenStaysUsable) {
  Compare([](Transcript& t) {
    Touch(t, "new", "new content");
    const int fd = t.Open("old", O_CREAT | O_RDWR);
    t.Call("write", write(fd, "old", 3));
    t.Call("rename", renameat(t.dir(), "new", t.dir(), "old"));
    std::string buffer(32, '\0');
    t.Call("pread", pread(fd, buffer.data(), buffer.size(), 0));
    t.Note("the replaced one", buffer.c_str());
    t.Content("old");
    t.FStat("replaced", fd);
    t.Close(fd);
  });
}

TEST(Names, PathsTooLong) {
  Compare([](Transcript& t) {
    std::string path;
    for (int i = 0; i < 20; ++i) {
      path += (i == 0 ? "" : "/") + std::string(100, 'p');
      t.Call("mkdir", mkdirat(t.dir(), path.c_str(), 0755));
    }
    Touch(t, (path + "/deep").c_str(), "deep");
    t.Content((path + "/deep").c_str());
    t.Open(std::string(PATH_MAX, 'x').c_str(), O_RDONLY);
  });
}

}  // namespace
}  // namespace rdfs::e2e
