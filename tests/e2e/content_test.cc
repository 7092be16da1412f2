// Content: read, write, append, holes, fallocate, copy_file_range, mmap, O_DIRECT, fsync, locks.
#include <gtest/gtest.h>
#include <linux/aio_abi.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "tests/e2e/compare.h"

namespace rdfs::e2e {
namespace {

std::string Pattern(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

// Runs `calls` in a child process and waits for it; the child's exit status is noted.
template <typename Calls>
void InChild(Transcript& t, std::string_view what, Calls calls) {
  const pid_t child = fork();
  if (child == 0) _exit(calls());
  int status = 0;
  waitpid(child, &status, 0);
  t.Note(what, static_cast<long long>(WIFEXITED(status) ? WEXITSTATUS(status) : 255));
}

TEST(Content, OddSizesAndOffsets) {
  Compare([](Transcript& t) {
    unsigned seed = 1;
    for (const std::size_t base : {std::size_t{0}, std::size_t{4096}, std::size_t{65536},
                                   std::size_t{131072}, std::size_t{1} << 20U}) {
      for (const std::size_t delta : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
        const std::size_t size = base + delta - (base > 0 ? 1 : 0);
        const std::string name = "f" + std::to_string(size);
        const std::string bytes = Pattern(size, seed++);
        const int fd = t.Open(name.c_str(), O_CREAT | O_RDWR);
        t.Call("write", write(fd, bytes.data(), bytes.size()));
        t.Call("overwrite", pwrite(fd, "odd", 3, static_cast<off_t>(size / 3)));
        std::string back(size + 10, '\0');
        t.Call("read back", pread(fd, back.data(), back.size(), 0));
        t.Call("read at the end", pread(fd, back.data(), 10, static_cast<off_t>(size)));
        t.Call("read behind", pread(fd, back.data(), 10, static_cast<off_t>(size) + 5000));
        t.Close(fd);
        t.Content(name.c_str());
      }
    }
  });
}

TEST(Content, RandomWritesReadsAndTruncates) {
  Compare([](Transcript& t) {
    std::mt19937 random(42);
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    std::string buffer(200000, '\0');
    for (int i = 0; i < 400; ++i) {
      const auto offset = static_cast<off_t>(random() % 1000000);
      const std::size_t size = random() % (i % 7 == 0 ? 200000 : 5000);
      switch (random() % 5) {
        case 0:
        case 1: {
          const std::string bytes = Pattern(size, static_cast<unsigned>(i));
          t.Call("pwrite", pwrite(fd, bytes.data(), bytes.size(), offset));
          break;
        }
        case 2:
        case 3: {
          std::ranges::fill(buffer, '\0');
          t.Call("pread", pread(fd, buffer.data(), size, offset));
          t.Note("bytes", static_cast<long long>(std::hash<std::string>()(buffer) >> 1U));
          break;
        }
        default:
          if (i % 3 == 0) t.Call("ftruncate", ftruncate(fd, offset));
      }
    }
    t.FStat("end", fd);
    t.Close(fd);
    t.Content("f");
  });
}

TEST(Content, Vectors) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    std::string a = "first ";
    std::string b;
    std::string c = "third";
    std::array<iovec, 3> parts{{{a.data(), a.size()}, {b.data(), b.size()}, {c.data(), c.size()}}};
    t.Call("writev", writev(fd, parts.data(), 3));
    t.Call("pwritev", pwritev(fd, parts.data(), 3, 100));
    t.Call("readv at the start", preadv(fd, parts.data(), 3, 3));
    t.Note("a", a);
    t.Note("c", c);
    t.Call("closed", close(fd));
    t.Call("read after close", read(fd, a.data(), 1));
    const int reader = t.Open("f", O_RDONLY);
    t.Call("write to a reader", write(reader, "x", 1));
    t.Close(reader);
    const int writer = t.Open("f", O_WRONLY);
    t.Call("read from a writer", read(writer, a.data(), 1));
    t.Close(writer);
    const int directory = t.Open(".", O_RDONLY);
    t.Call("read a directory", read(directory, a.data(), 1));
    t.Close(directory);
  });
}

TEST(Content, AppendGoesToTheEnd) {
  Compare([](Transcript& t) {
    const int first = t.Open("f", O_CREAT | O_WRONLY | O_APPEND);
    const int second = t.Open("f", O_WRONLY | O_APPEND);
    for (int i = 0; i < 50; ++i) {
      t.Call("append", write(i % 2 == 0 ? first : second, "line of text\n", 13));
    }
    t.Call("seek is ignored", lseek(first, 0, SEEK_SET));
    t.Call("append", write(first, "end\n", 4));
    t.Close(first);
    t.Close(second);
    t.Content("f");
    InChild(t, "eight children append", [&t] {
      for (int child = 0; child < 8; ++child) {
        if (fork() != 0) continue;
        const int fd = openat(t.dir(), "many", O_CREAT | O_WRONLY | O_APPEND, 0644);
        for (int i = 0; i < 50; ++i) {
          if (write(fd, "0123456789abcdef", 16) != 16) _exit(1);
        }
        _exit(0);
      }
      int failed = 0;
      int status = 0;
      while (wait(&status) > 0) failed += WEXITSTATUS(status);
      return failed;
    });
    t.Content("many");
  });
}

// make(1) and others set the flag of a descriptor that they were given; some clear it.
TEST(Content, AppendIsWhatTheDescriptorHasNow) {
  Compare([](Transcript& t) {
    for (const int access : {O_WRONLY, O_RDWR}) {
      const std::string name = access == O_WRONLY ? "w" : "rw";
      const int cleared = t.Open(name.c_str(), O_CREAT | access | O_APPEND);
      t.Call("append", write(cleared, "0123456789", 10));
      t.Call("clear", fcntl(cleared, F_SETFL, 0));
      t.Call("at an offset", pwrite(cleared, "ab", 2, 1));
      t.Call("at the place", write(cleared, "cd", 2));
      const int set = t.Open(name.c_str(), access);
      t.Call("at the begin", write(set, "ef", 2));
      t.Call("set", fcntl(set, F_SETFL, O_APPEND));
      t.Call("at the end", write(set, "gh", 2));
      t.Call("at the end of another's", write(cleared, "ij", 2));
      t.Call("at the end again", write(set, "kl", 2));
      t.Close(cleared);
      t.Close(set);
      t.Content(name.c_str());
    }
  });
}

// What is written by a descriptor that cannot read is seen at once by those that had read before.
TEST(Content, ReadersBesideAWriter) {
  Compare([](Transcript& t) {
    const std::string old(3 * 4096 + 100, 'o');
    const int writer = t.Open("f", O_CREAT | O_WRONLY);
    t.Call("write", write(writer, old.data(), old.size()));
    const int reader = t.Open("f", O_RDONLY);
    std::string back(4 * 4096, '\0');
    t.Call("read", pread(reader, back.data(), back.size(), 0));
    void* mapped = mmap(nullptr, old.size(), PROT_READ, MAP_SHARED, reader, 0);
    const char* bytes = static_cast<const char*>(mapped);
    t.Note("mapped", mapped == MAP_FAILED ? "no" : std::string(bytes + 4090, 10));
    for (const off_t at :
         {off_t{4090}, off_t{8192}, off_t{3 * 4096 + 95}, off_t{3 * 4096 + 4000}}) {
      t.Call("overwrite", pwrite(writer, "new bytes", 9, at));
      t.Call("read again", pread(reader, back.data(), back.size(), 0));
      t.Note("bytes", back.substr(static_cast<std::size_t>(at) - 3, 15));
      if (mapped != MAP_FAILED && at < 8193) t.Note("mapped", std::string(bytes + at - 3, 15));
    }
    t.FStat("size", reader);
    if (mapped != MAP_FAILED) munmap(mapped, old.size());
    t.Close(reader);
    t.Close(writer);
    t.Content("f");
  });
}

TEST(Content, HolesAndSeeks) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    t.Call("write", pwrite(fd, "start", 5, 0));
    t.Call("far", pwrite(fd, "end", 3, 10 << 20));
    t.Call("data from 0", lseek(fd, 0, SEEK_DATA));
    const off_t hole = lseek(fd, 0, SEEK_HOLE);
    t.Note("a hole before the end", hole > 0 && hole < (10 << 20) ? "yes" : "no");
    t.Call("data behind the hole", lseek(fd, hole, SEEK_DATA) <= (10 << 20) ? 0 : -1);
    t.Call("hole at the end", lseek(fd, (10 << 20) + 1, SEEK_HOLE));
    t.Call("data at the end", lseek(fd, (10 << 20) + 3, SEEK_DATA));
    t.Call("behind the end", lseek(fd, 20 << 20, SEEK_HOLE));
    t.Call("end", lseek(fd, 0, SEEK_END));
    t.Call("negative", lseek(fd, -1, SEEK_SET));
    std::string buffer(100, 'x');
    t.Call("read in the hole", pread(fd, buffer.data(), 100, 5 << 20));
    t.Note("zeroes", buffer == std::string(100, '\0') ? "yes" : "no");
    struct stat st {};
    t.Call("fstat", fstat(fd, &st));
    t.Note("sparse", st.st_blocks * 512 < st.st_size ? "yes" : "no");
    t.Close(fd);
    t.Content("f");
  });
}

TEST(Content, BeyondFourGiB) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    for (const off_t offset : {(4LL << 30) - 1, 4LL << 30, (5LL << 30) + 12345}) {
      t.Call("pwrite", pwrite(fd, "abc", 3, offset));
      std::string back(5, '?');
      t.Call("pread", pread(fd, back.data(), back.size(), offset - 1));
      t.Note("bytes", back);
    }
    t.FStat("large", fd);
    t.Close(fd);
  });
}

TEST(Content, Fallocate) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    const std::string bytes = Pattern(100000, 7);
    t.Call("write", write(fd, bytes.data(), bytes.size()));
    t.Call("grow", fallocate(fd, 0, 0, 150000));
    t.FStat("grown", fd);
    t.Call("keep size", fallocate(fd, FALLOC_FL_KEEP_SIZE, 150000, 100000));
    t.FStat("kept", fd);
    t.Call("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10000, 30000));
    t.Call("punch alone", fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10));
    t.Call("negative", fallocate(fd, 0, -1, 10));
    t.Call("nothing", fallocate(fd, 0, 0, 0));
    t.Call("posix_fallocate", posix_fallocate(fd, 0, 200000));
    t.FStat("end", fd);
    t.Close(fd);
    t.Content("f");
    const int reader = t.Open("f", O_RDONLY);
    t.Call("by a reader", fallocate(reader, 0, 0, 10));
    t.Close(reader);
  });
}

TEST(Content, ZeroRange) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    const std::string bytes = Pattern(50001, 8);
    t.Call("write", write(fd, bytes.data(), bytes.size()));
    t.Call("inside", fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 777, 20000));
    t.Content("f");
    t.Call("beyond the end, size kept",
           fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 40000, 50000));
    t.FStat("kept", fd);
    t.Call("beyond the end", fallocate(fd, FALLOC_FL_ZERO_RANGE, 45000, 50000));
    t.FStat("grown", fd);
    t.Close(fd);
    t.Content("f");
  });
}

TEST(Content, CopyFileRange) {
  Compare([](Transcript& t) {
    const std::string bytes = Pattern(300001, 9);
    const int in = t.Open("in", O_CREAT | O_RDWR);
    t.Call("write", write(in, bytes.data(), bytes.size()));
    const int out = t.Open("out", O_CREAT | O_RDWR);
    off_t from = 11;
    off_t to = 5;
    long long copied = 0;
    while (true) {
      const ssize_t now = copy_file_range(in, &from, out, &to, 1 << 20, 0);
      if (now <= 0) break;
      copied += now;
    }
    t.Note("copied", copied);
    t.Close(in);
    t.Close(out);
    t.Content("out");
  });
}

TEST(Content, MappedSharedAndWritable) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    t.Call("size", ftruncate(fd, 20000));
    void* const map = mmap(nullptr, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    t.Note("mapped", map != MAP_FAILED ? "yes" : "no");
    if (map == MAP_FAILED) return;
    auto* const bytes = static_cast<char*>(map);
    std::memcpy(bytes + 4090, "across a page", 13);
    t.Call("msync", msync(map, 20000, MS_SYNC));
    std::string back(13, '\0');
    t.Call("pread sees the store", pread(fd, back.data(), 13, 4090));
    t.Note("bytes", back);
    t.Call("pwrite", pwrite(fd, "written", 7, 10000));
    t.Note("the map sees the write", std::string_view(bytes + 10000, 7));
    std::memcpy(bytes + 19990, "last", 4);
    t.Call("munmap", munmap(map, 20000));
    t.Close(fd);
    t.Content("f");
    const int reader = t.Open("f", O_RDONLY);
    t.Note(
        "a reader cannot map for writing",
        mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED ? "right" : "wrong");
    void* const copy = mmap(nullptr, 20000, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0);
    if (copy != MAP_FAILED) {
      t.Note("private", std::string_view(static_cast<char*>(copy) + 4090, 13));
      munmap(copy, 20000);
    }
    t.Close(reader);
  });
}

TEST(Content, Direct) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR | O_DIRECT);
    if (fd < 0) return;
    const std::unique_ptr<char, void (*)(void*)> buffer(
        static_cast<char*>(std::aligned_alloc(4096, 1 << 20)), std::free);
    const std::string bytes = Pattern(1 << 20, 21);
    std::memcpy(buffer.get(), bytes.data(), bytes.size());
    t.Call("write", pwrite(fd, buffer.get(), 1 << 20, 0));
    t.Call("write a page", pwrite(fd, buffer.get(), 4096, 8192));
    std::memset(buffer.get(), 0, 1 << 20);
    t.Call("read", pread(fd, buffer.get(), 1 << 20, 4096));
    t.Note("bytes", static_cast<long long>(
                        std::hash<std::string_view>()({buffer.get(), (1 << 20) - 4096}) >> 1U));
    t.Close(fd);
    t.Content("f");
  });
}

// Their answers go to the kernel together (fs/fuse/content/short_reads.h): each has its own bytes,
// also at the end and behind it, and among longer ones.
TEST(Content, ManyDirectReadsAtOnce) {
  Compare([](Transcript& t) {
    constexpr std::size_t kReads = 16, kPage = 4096, kMostPages = 6, kPages = 256;
    const std::string bytes = Pattern(kPages * kPage - 1000, 22);
    const int writer = t.Open("f", O_CREAT | O_RDWR);
    t.Call("write", pwrite(writer, bytes.data(), bytes.size(), 0));
    t.Close(writer);
    const int fd = t.Open("f", O_RDONLY | O_DIRECT);
    if (fd < 0) return;
    const std::unique_ptr<char, void (*)(void*)> buffer(
        static_cast<char*>(std::aligned_alloc(kPage, kReads * kMostPages * kPage)), std::free);
    aio_context_t context = 0;
    t.Call("io_setup", syscall(SYS_io_setup, kReads, &context));
    std::mt19937 random(23);
    for (int round = 0; round < 100; ++round) {
      std::array<iocb, kReads> reads{};
      std::array<iocb*, kReads> list{};
      for (std::size_t i = 0; i < kReads; ++i) {
        reads.at(i).aio_data = i;
        reads.at(i).aio_fildes = static_cast<std::uint32_t>(fd);
        reads.at(i).aio_lio_opcode = IOCB_CMD_PREAD;
        reads.at(i).aio_buf =
            reinterpret_cast<std::uint64_t>(buffer.get() + i * kMostPages * kPage);
        reads.at(i).aio_nbytes = (1 + random() % kMostPages) * kPage;
        reads.at(i).aio_offset = static_cast<std::int64_t>(random() % (kPages + 2) * kPage);
        list.at(i) = &reads.at(i);
      }
      std::memset(buffer.get(), 0, kReads * kMostPages * kPage);
      t.Call("io_submit", syscall(SYS_io_submit, context, kReads, list.data()));
      std::array<io_event, kReads> ended{};
      timespec patience{.tv_sec = 30, .tv_nsec = 0};
      t.Call("io_getevents",
             syscall(SYS_io_getevents, context, kReads, kReads, ended.data(), &patience));
      std::ranges::sort(ended, {}, &io_event::data);
      for (const io_event& read : ended) t.Note("read", static_cast<long long>(read.res));
      t.Note("bytes",
             static_cast<long long>(
                 std::hash<std::string_view>()({buffer.get(), kReads * kMostPages * kPage}) >> 1U));
    }
    syscall(SYS_io_destroy, context);
    t.Close(fd);
  });
}

// libfuse has no room for it before 3.17: there the mount has to refuse it, so that programs make a
// file with a name instead.
TEST(Content, AFileWithoutAName) {
  if (!RDFS_E2E_TMPFILE) {
    const int fd = open(MountRoot().c_str(), O_TMPFILE | O_RDWR, 0600);
    EXPECT_EQ(fd, -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    return;
  }
  Compare([](Transcript& t) {
    const int fd = t.Open(".", O_TMPFILE | O_RDWR, 0640);
    if (fd < 0) return;
    t.FStat("without a name", fd);
    t.Call("write", pwrite(fd, "nameless", 8, 0));
    std::string bytes(8, '\0');
    t.Call("read", pread(fd, bytes.data(), bytes.size(), 0));
    t.Note("bytes", bytes);
    t.List(".");
    const std::string itself = "/proc/self/fd/" + std::to_string(fd);
    t.Call("link", linkat(AT_FDCWD, itself.c_str(), t.dir(), "named", AT_SYMLINK_FOLLOW));
    t.FStat("with a name", fd);
    t.Close(fd);
    t.Content("named");
    const int kept = t.Open(".", O_TMPFILE | O_WRONLY | O_EXCL);
    const std::string excluded = "/proc/self/fd/" + std::to_string(kept);
    t.Call("link of an exclusive one",
           linkat(AT_FDCWD, excluded.c_str(), t.dir(), "never", AT_SYMLINK_FOLLOW));
    t.Close(kept);
    t.Call("not in a file", openat(t.dir(), "named", O_TMPFILE | O_RDWR, 0600));
    t.List(".");
  });
}

TEST(Content, Syncs) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR | O_SYNC);
    t.Call("write", write(fd, "x", 1));
    t.Call("fsync", fsync(fd));
    t.Call("fdatasync", fdatasync(fd));
    t.Close(fd);
    const int directory = t.Open(".", O_RDONLY | O_DIRECTORY);
    t.Call("fsync of a directory", fsync(directory));
    t.Close(directory);
  });
}

struct flock Range(short type, off_t start, off_t length) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return lock;
}

TEST(Content, PosixLocks) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    struct flock lock = Range(F_WRLCK, 0, 100);
    t.Call("lock", fcntl(fd, F_SETLK, &lock));
    InChild(t, "another process is kept out", [&t] {
      const int other = openat(t.dir(), "f", O_RDWR);
      struct flock wanted = Range(F_RDLCK, 50, 10);
      if (fcntl(other, F_SETLK, &wanted) == 0 || (errno != EAGAIN && errno != EACCES)) return 1;
      wanted = Range(F_WRLCK, 50, 10);
      if (fcntl(other, F_GETLK, &wanted) != 0 || wanted.l_type != F_WRLCK) return 2;
      if (wanted.l_start != 0 || wanted.l_len != 100) return 3;
      wanted = Range(F_WRLCK, 100, 10);
      return fcntl(other, F_SETLK, &wanted) == 0 ? 0 : 4;
    });
    lock = Range(F_UNLCK, 20, 10);
    t.Call("unlock the middle", fcntl(fd, F_SETLK, &lock));
    InChild(t, "the middle is free, the rest is not", [&t] {
      const int other = openat(t.dir(), "f", O_RDWR);
      struct flock wanted = Range(F_WRLCK, 20, 10);
      if (fcntl(other, F_SETLK, &wanted) != 0) return 1;
      wanted = Range(F_WRLCK, 30, 1);
      return fcntl(other, F_SETLK, &wanted) == 0 ? 2 : 0;
    });
    t.Close(t.Open("f", O_RDONLY));  // closing any descriptor of the file drops the locks
    InChild(t, "all free after a close", [&t] {
      const int other = openat(t.dir(), "f", O_RDWR);
      struct flock wanted = Range(F_WRLCK, 0, 0);
      return fcntl(other, F_SETLK, &wanted) == 0 ? 0 : 1;
    });
    t.Close(fd);
  });
}

TEST(Content, LocksThatWait) {
  Compare([](Transcript& t) {
    const int fd = t.Open("f", O_CREAT | O_RDWR);
    std::array<int, 2> ready{};
    if (pipe(ready.data()) != 0) return;
    const pid_t child = fork();
    if (child == 0) {
      const int other = openat(t.dir(), "f", O_RDWR);
      struct flock lock = Range(F_WRLCK, 0, 0);
      const bool locked = fcntl(other, F_SETLK, &lock) == 0;
      (void)!write(ready[1], locked ? "y" : "n", 1);
      usleep(200000);
      _exit(0);  // the lock goes with the process
    }
    char answer = '?';
    t.Call("child", read(ready[0], &answer, 1));
    t.Note("child has it", answer == 'y' ? "yes" : "no");
    struct flock lock = Range(F_WRLCK, 0, 0);
    t.Call("wait for it", fcntl(fd, F_SETLKW, &lock));
    int status = 0;
    waitpid(child, &status, 0);
    t.Close(fd);
    close(ready[0]);
    close(ready[1]);
  });
}

TEST(Content, FlockIsOfTheOpenFile) {
  Compare([](Transcript& t) {
    const int first = t.Open("f", O_CREAT | O_RDWR);
    const int second = t.Open("f", O_RDWR);
    t.Call("shared", flock(first, LOCK_SH | LOCK_NB));
    t.Call("shared too", flock(second, LOCK_SH | LOCK_NB));
    t.Call("exclusive", flock(second, LOCK_EX | LOCK_NB));
    t.Call("unlock", flock(first, LOCK_UN));
    t.Call("exclusive now", flock(second, LOCK_EX | LOCK_NB));
    const int twin = dup(second);
    t.Close(second);
    t.Call("held by the dup", flock(first, LOCK_EX | LOCK_NB));
    t.Close(twin);
    t.Call("free", flock(first, LOCK_EX | LOCK_NB));
    t.Close(first);
  });
}

TEST(Content, OpenFileDescriptionLocks) {
  Compare([](Transcript& t) {
    const int first = t.Open("f", O_CREAT | O_RDWR);
    const int second = t.Open("f", O_RDWR);
    struct flock lock = Range(F_WRLCK, 10, 10);
    t.Call("lock", fcntl(first, F_OFD_SETLK, &lock));
    lock = Range(F_RDLCK, 15, 1);
    t.Call("the other open file", fcntl(second, F_OFD_SETLK, &lock));
    lock = Range(F_RDLCK, 20, 1);
    t.Call("beside it", fcntl(second, F_OFD_SETLK, &lock));
    t.Close(first);
    lock = Range(F_WRLCK, 0, 0);
    t.Call("after the close", fcntl(second, F_OFD_SETLK, &lock));
    t.Close(second);
  });
}

}  // namespace
}  // namespace rdfs::e2e
