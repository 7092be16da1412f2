// A tree that lies: names that lead elsewhere, kinds that change between two looks, content that is
// not there. Whatever it says, nothing is made outside the destination, and the rest is copied.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "tests/tools/copy/temp_tree.h"
#include "tools/copy/local_copy.h"
#include "tools/copy/source/pattern.h"

namespace rdfs::copy {
namespace {

class HostileFile final : public File {
 public:
  enum class Is { kDirectory, kFile, kSymlink };
  HostileFile(Is what, int depth, off_t size = 4) : what_(what), depth_(depth), size_(size) {}

  FilePtr Open(const std::string& name, int flags, mode_t) override {
    // Whatever was said before: it is a directory for who wants one.
    if ((flags & O_DIRECTORY) != 0) {
      return std::make_shared<HostileFile>(Is::kDirectory, depth_ + 1);
    }
    return std::make_shared<HostileFile>(name == "turns" ? Is::kSymlink : Is::kFile, depth_,
                                         name == "short" ? 100 : 4);
  }
  FilePtr OpenBeneath(const std::string& path, int flags) override { return Open(path, flags, 0); }
  int Stat(const std::string& path, bool, struct stat& out) override {
    Is what = path.empty() || path == "top" ? what_ : Is::kFile;
    if (path.starts_with("link")) what = Is::kSymlink;
    if (path.starts_with("inner") || path == "..") what = Is::kDirectory;
    out = {};
    out.st_ino = static_cast<ino_t>(depth_) + 100;
    out.st_nlink = 1;
    out.st_mode = what == Is::kDirectory ? S_IFDIR | 0755
                  : what == Is::kSymlink ? S_IFLNK | 0777
                                         : S_IFREG | 0644;
    out.st_size = size_;
    return 0;
  }
  int ReadLink(const std::string&, std::string& target) override {
    target = depth_ == 1 ? std::string("../../outside") : std::string("a\0b", 3);
    return 0;
  }
  int ReadNames(std::deque<std::string>& out) override {
    if (listed_) return 0;
    listed_ = true;
    for (const char* name : {"..", ".", "", "../escaped", "/tmp/escaped", "in/../../escaped", "a/b",
                             "link", "link/escaped", "turns", "short", "honest"}) {
      out.emplace_back(name);
    }
    out.emplace_back("nul\0escaped", 11);
    out.emplace_back(300, 'x');
    if (depth_ < 3) out.emplace_back("inner");
    return 1;
  }
  ssize_t Read(MutableByteSpan out, std::uint64_t offset) override {
    if (offset >= 4) return 0;
    out[0] = std::byte{'!'};
    return 1;
  }
  off_t Seek(std::uint64_t, int) override { return Refuse(); }
  ssize_t ListXattrs(const std::string&, char* out, std::size_t) override {
    std::fill_n(out, 5, 'x');  // without an end
    return 5;
  }
  ssize_t GetXattr(const std::string&, const char*, char*, std::size_t) override { return 0; }

  int MakeDirectory(const std::string&, mode_t) override { return Refuse(); }
  int MakeSymlink(const std::string&, const std::string&) override { return Refuse(); }
  int MakeNode(const std::string&, mode_t, dev_t) override { return Refuse(); }
  int Link(const std::string&, File&, const std::string&) override { return Refuse(); }
  int Rename(const std::string&, const std::string&) override { return Refuse(); }
  int Remove(const std::string&, bool) override { return Refuse(); }
  int SetMode(const std::string&, mode_t) override { return Refuse(); }
  int SetOwner(const std::string&, uid_t, gid_t) override { return Refuse(); }
  int SetTimes(const std::string&, const std::array<timespec, 2>&) override { return Refuse(); }
  int SetXattr(const std::string&, const char*, const std::string&) override { return Refuse(); }
  int RemoveXattr(const std::string&, const char*) override { return Refuse(); }
  [[nodiscard]] bool IsPrivileged() const override { return false; }
  std::optional<uid_t> Maker() override { return 0; }
  int Lock() override { return 0; }
  ssize_t Write(ByteSpan, std::uint64_t) override { return Refuse(); }
  int Truncate(std::uint64_t) override { return Refuse(); }
  int PunchHole(std::uint64_t, std::uint64_t) override { return Refuse(); }
  int Flush() override { return Refuse(); }
  int Sync() override { return Refuse(); }
  ssize_t CopyRange(File&, std::uint64_t, std::size_t) override { return Refuse(); }
  [[nodiscard]] const void* system() const override { return this; }

 private:
  static int Refuse() {
    errno = EINVAL;
    return -1;
  }
  const Is what_;
  const int depth_;
  const off_t size_;
  bool listed_ = false;
};

TEST(HostileTree, MakesNothingOutsideTheDestination) {
  const TempTree tree;
  tree.MakeDirectory("base/to");
  Report report({.name = "test"}, BootClock::now());
  const std::atomic<bool> stop{false};
  LocalOptions options;
  options.scan.recurse = true;
  options.keep = {.mode = true, .times = true, .xattrs = true, .links = true};
  options.threads = 4;
  {
    auto to = Destination::Open(
        tree / "base/to",
        {.keep = options.keep, .same_machine = true, .report = [](const auto&, const auto&) {}});
    ASSERT_TRUE(to.ok() && (*to)->AddTarget(0, "").ok());
    const auto from = std::make_shared<HostileFile>(HostileFile::Is::kDirectory, 0);
    LocalCopy copy(options, {{"hostile", "top", from}}, **to, report, stop);
    copy.Add(0);
    copy.Finish();
  }
  EXPECT_EQ(report.ExitCode(), kExitFailed);
  EXPECT_EQ(tree.Entries("base"), 1U) << "something was made beside the destination";
  EXPECT_EQ(tree.Entries(), 1U);
  EXPECT_FALSE(std::filesystem::exists("/tmp/escaped"));
  // What can be copied was, and nothing else.
  EXPECT_EQ(tree.Read("base/to/honest"), "!!!!");
  EXPECT_EQ(tree.Read("base/to/inner/honest"), "!!!!");
  EXPECT_FALSE(tree.Has("base/to/short"));
  EXPECT_FALSE(tree.Has("base/to/turns"));
  EXPECT_FALSE(tree.Has("base/to/escaped"));
}

TEST(HostileTree, PatternsMatchNoNameThatLeadsElsewhere) {
  HostileFile root(HostileFile::Is::kDirectory, 0);
  EXPECT_EQ(Expand(root, "*"),
            (std::vector<std::string>{"honest", "inner", "link", "short", "turns"}));
  EXPECT_EQ(Expand(root, ".*"), std::vector<std::string>{});
  EXPECT_EQ(Expand(root, "*/escaped*"), std::vector<std::string>{});
}

}  // namespace
}  // namespace rdfs::copy
