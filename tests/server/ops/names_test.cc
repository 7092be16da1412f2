// Names and attributes: each request beside the same call on a plain directory.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string_view>
#include <utility>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

using fs::Opcode;

// The errno of a libc call that returned `result`.
int Err(long result) { return result < 0 ? errno : 0; }

class NamesTest : public testing::Test {
 protected:
  NamesTest() {
    for (const std::string& top : {server.dir(), plain.path()}) {
      std::ofstream(top + "/file") << "content";
      ::mkdir((top + "/dir").c_str(), 0755);
      std::ofstream(top + "/dir/inner") << "x";
      ::mkdir((top + "/empty").c_str(), 0755);
      EXPECT_EQ(::symlink("file", (top + "/link").c_str()), 0);
      EXPECT_EQ(::symlink("/etc/passwd", (top + "/absolute").c_str()), 0);
      EXPECT_EQ(::mkfifo((top + "/fifo").c_str(), 0644), 0);
    }
  }
  // The directory and last name of a relative path, as the body's fields.
  Body& Where(Body& body, const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const fs::Handle parent =
        slash == path.npos ? server.root() : server.Walk(path.substr(0, slash));
    return body.Add(parent).Name(slash == path.npos ? path : path.substr(slash + 1));
  }
  int Simple(Opcode opcode, const std::string& path) {
    Body body;
    return server.Ask(opcode, Where(body, path)).errno_value();
  }
  int Make(Opcode opcode, const std::string& path, mode_t mode, mode_t umask = 022) {
    fs::MknodRequest request{};
    request.mode = mode;
    request.umask = umask;
    Body body;
    return server.Ask(opcode, Where(body.Add(request), path)).errno_value();
  }
  int Rename(const std::string& from, const std::string& to, std::uint32_t flags = 0) {
    fs::RenameRequest request{};
    request.flags = flags;
    Body body;
    return server.Ask(Opcode::kRename, Where(Where(body.Add(request), from), to)).errno_value();
  }
  int Link(const std::string& from, const std::string& to) {
    Body body;
    return server.Ask(Opcode::kLink, Where(body.Add(server.Walk(from)), to)).errno_value();
  }
  static struct stat StatOf(const std::string& path) {
    struct stat stat {};
    EXPECT_EQ(::lstat(path.c_str(), &stat), 0) << path;
    return stat;
  }

  Harness server;
  TempDir plain;
};

// Whoever changes names may be told what the directories are like behind the change.
TEST_F(NamesTest, DirectoriesAreToldWhereThatIsAskedFor) {
  const auto tell = [&](Opcode opcode, const Body& body) {
    auto message =
        Harness::Message(opcode, body.bytes(), server.NextSequence(), server.lane->session()->id());
    message[offsetof(fs::RequestHeader, flags)] = std::byte{fs::kRequestTellDirectories};
    EXPECT_TRUE(server.Deliver(server.lane, message));
    std::vector<std::byte> answer = std::move(server.lane->sent.front());
    server.lane->sent.pop_front();
    ByteReader reader(answer);
    const auto header = reader.Read<fs::ReplyHeader>();
    EXPECT_EQ(header.error, std::uint16_t{0});
    reader.ReadBytes(header.body_bytes);
    const auto extension = reader.Read<fs::ExtensionHeader>();
    EXPECT_EQ(extension.type, fs::kExtensionDirectories);
    EXPECT_EQ(extension.length, reader.remaining());
    std::vector<fs::AttrWire> told;
    while (reader.ok() && reader.remaining() > 0) told.push_back(reader.Read<fs::AttrWire>());
    EXPECT_TRUE(reader.ok());
    return told;
  };
  const auto expect = [&](const std::vector<fs::AttrWire>& told, std::vector<std::string> paths) {
    ASSERT_EQ(told.size(), paths.size());
    for (std::size_t i = 0; i < told.size(); ++i) {
      const struct stat now = StatOf(paths[i]);
      EXPECT_EQ(told[i].ino, now.st_ino);
      EXPECT_EQ(told[i].nlink, now.st_nlink);
      EXPECT_EQ(told[i].mtime.nanoseconds, static_cast<std::uint32_t>(now.st_mtim.tv_nsec));
      EXPECT_GT(told[i].lease_ms, 0U);
    }
  };
  const auto at = [&](const std::string& path) {
    Body body;
    return Body(Where(body, path));
  };
  fs::MknodRequest mknod{};
  mknod.mode = 0755;
  expect(tell(Opcode::kMkdir, Where(Body().Add(mknod), "d")), {server.dir()});
  mknod.mode = S_IFREG | 0644;
  expect(tell(Opcode::kMknod, Where(Body().Add(mknod), "d/node")), {server.dir() + "/d"});
  expect(tell(Opcode::kSymlink, at("d/link").Name("x")), {server.dir() + "/d"});
  fs::CreateRequest create{};
  create.flags = fs::kOpenWrite;
  expect(tell(Opcode::kCreate, Where(Body().Add(create), "d/file")), {server.dir() + "/d"});
  expect(tell(Opcode::kLink, Where(Body().Add(server.Walk("d/file")), "hard")), {server.dir()});
  expect(tell(Opcode::kRename, Where(Where(Body().Add(fs::RenameRequest{}), "d/file"), "moved")),
         {server.dir() + "/d", server.dir()});
  expect(tell(Opcode::kUnlink, at("moved")), {server.dir()});
  // Who has a removed directory open cannot ask any more what it is like.
  fs::MknodRequest empty{};
  empty.mode = 0750;
  (void)tell(Opcode::kMkdir, Where(Body().Add(empty), "e"));
  const struct stat before = StatOf(server.dir() + "/e");
  const std::vector<fs::AttrWire> told = tell(Opcode::kRmdir, at("e"));
  ASSERT_EQ(told.size(), 2U);
  expect({told[0]}, {server.dir()});
  EXPECT_EQ(told[1].ino, before.st_ino);
  EXPECT_EQ(told[1].mode, before.st_mode);
  EXPECT_EQ(told[1].nlink, 0U);
  EXPECT_EQ(told[1].ctime.nanoseconds, told[0].ctime.nanoseconds);
  EXPECT_EQ(told[1].lease_ms, 0U);
  // What failed, and what changes no names, tells nothing.
  EXPECT_EQ(server.Ask(Opcode::kUnlink, at("moved")).errno_value(), ENOENT);
}

TEST_F(NamesTest, LookupTellsWhatStatTells) {
  for (const std::string name : {"file", "dir", "link", "fifo", "absolute"}) {
    const Answer answer = server.Lookup(server.root(), name);
    ASSERT_TRUE(answer.ok()) << name;
    const fs::AttrWire attr = Harness::EntryIn(answer).attr;
    const struct stat stat = StatOf(server / name);
    EXPECT_EQ(attr.ino, stat.st_ino);
    EXPECT_EQ(attr.mode, stat.st_mode);
    EXPECT_EQ(attr.size, static_cast<std::uint64_t>(stat.st_size));
    EXPECT_EQ(attr.nlink, stat.st_nlink);
    EXPECT_EQ(attr.uid, stat.st_uid);
    EXPECT_EQ(attr.mtime.seconds, stat.st_mtim.tv_sec);
    EXPECT_EQ(attr.mtime.nanoseconds, stat.st_mtim.tv_nsec);
    EXPECT_EQ(attr.lease_ms, 1000U);
  }
  EXPECT_EQ(server.Lookup(server.root(), "none").errno_value(), ENOENT);
  EXPECT_EQ(server.Lookup(server.Walk("file"), "x").errno_value(), ENOTDIR);
  EXPECT_EQ(server.Lookup(server.root(), std::string(255, 'n')).errno_value(), ENOENT);
}

TEST_F(NamesTest, MakingAndRemovingGiveTheSameErrnos) {
  const std::string top = plain.path() + "/";
  ::umask(022);
  EXPECT_EQ(Make(Opcode::kMkdir, "new", 0755), Err(::mkdir((top + "new").c_str(), 0755)));
  EXPECT_EQ(Make(Opcode::kMkdir, "dir", 0755), Err(::mkdir((top + "dir").c_str(), 0755)));
  EXPECT_EQ(Make(Opcode::kMkdir, "file/x", 0755), Err(::mkdir((top + "file/x").c_str(), 0755)));
  EXPECT_EQ(Make(Opcode::kMknod, "pipe", S_IFIFO | 0600),
            Err(::mkfifo((top + "pipe").c_str(), 0600)));
  EXPECT_EQ(Make(Opcode::kMknod, "sock", S_IFSOCK | 0600),
            Err(::mknod((top + "sock").c_str(), S_IFSOCK | 0600, 0)));
  EXPECT_EQ(Make(Opcode::kMknod, "node", S_IFDIR | 0600),
            Err(::mknod((top + "node").c_str(), S_IFDIR | 0600, 0)));
  EXPECT_EQ(Simple(Opcode::kUnlink, "none"), Err(::unlink((top + "none").c_str())));
  EXPECT_EQ(Simple(Opcode::kUnlink, "dir"), Err(::unlink((top + "dir").c_str())));
  EXPECT_EQ(Simple(Opcode::kRmdir, "file"), Err(::rmdir((top + "file").c_str())));
  EXPECT_EQ(Simple(Opcode::kRmdir, "dir"), Err(::rmdir((top + "dir").c_str())));
  EXPECT_EQ(Simple(Opcode::kRmdir, "empty"), Err(::rmdir((top + "empty").c_str())));
  EXPECT_EQ(Simple(Opcode::kUnlink, "file"), Err(::unlink((top + "file").c_str())));
  EXPECT_EQ(::access((server / "file").c_str(), F_OK), -1);
}

TEST_F(NamesTest, UmaskIsTheClientsUnlessTheParentHasADefaultAcl) {
  ASSERT_EQ(Make(Opcode::kMkdir, "masked", 0777, 027), 0);
  EXPECT_EQ(StatOf(server / "masked").st_mode & 07777U, 0750U);
  // u::rwx g::rwx o::rwx mask::rwx as a default list: the umask has nothing to say.
  const unsigned char acl[] = {
      2,    0,    0,    0, 1, 0, 7,    0,    0xff, 0xff, 0xff, 0xff, 4, 0, 7,    0,    0xff, 0xff,
      0xff, 0xff, 0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0,    7, 0, 0xff, 0xff, 0xff, 0xff};
  if (::setxattr((server / "dir").c_str(), "system.posix_acl_default", acl, sizeof(acl), 0) != 0) {
    GTEST_SKIP() << "this file system has no ACLs";
  }
  ASSERT_EQ(Make(Opcode::kMkdir, "dir/open", 0777, 027), 0);
  EXPECT_EQ(StatOf(server / "dir/open").st_mode & 07777U, 0777U);
}

TEST_F(NamesTest, SetgidDirectoriesPassTheirGroupOnAsRoot) {
  for (const std::string& top : {server.dir(), plain.path()}) {
    if (::chown((top + "/dir").c_str(), static_cast<uid_t>(-1), 1) != 0) {
      GTEST_SKIP() << "not root";
    }
    ASSERT_EQ(::chmod((top + "/dir").c_str(), 02775), 0);
  }
  ASSERT_EQ(Make(Opcode::kMkdir, "dir/sub", 0755), 0);
  ASSERT_EQ(::mkdir((plain / "dir/sub").c_str(), 0755), 0);
  EXPECT_EQ(StatOf(server / "dir/sub").st_mode, StatOf(plain / "dir/sub").st_mode);
  EXPECT_EQ(StatOf(server / "dir/sub").st_gid, 1U);
}

TEST_F(NamesTest, RenameWithAllItsFlags) {
  const auto rename2 = [&](const std::string& from, const std::string& to, unsigned flags) {
    return Err(::syscall(SYS_renameat2, AT_FDCWD, (plain / from).c_str(), AT_FDCWD,
                         (plain / to).c_str(), flags));
  };
  EXPECT_EQ(Rename("file", "dir/inner", fs::kRenameNoReplace),
            rename2("file", "dir/inner", RENAME_NOREPLACE));
  EXPECT_EQ(Rename("file", "dir/inner", fs::kRenameExchange),
            rename2("file", "dir/inner", RENAME_EXCHANGE));
  EXPECT_EQ(StatOf(server / "file").st_size, 1);
  EXPECT_EQ(Rename("dir", "dir/x"), rename2("dir", "dir/x", 0));
  EXPECT_EQ(Rename("file", "dir"), rename2("file", "dir", 0));
  EXPECT_EQ(Rename("dir", "file"), rename2("dir", "file", 0));
  EXPECT_EQ(Rename("empty", "dir"), rename2("empty", "dir", 0));
  EXPECT_EQ(Rename("none", "x"), rename2("none", "x", 0));
  EXPECT_EQ(Rename("file", "file"), rename2("file", "file", 0));
  EXPECT_EQ(Rename("file", "x", 64), EINVAL);
  EXPECT_EQ(Rename("file", "moved"), 0);
  EXPECT_EQ(::access((server / "moved").c_str(), F_OK), 0);
}

// There is nothing to do, and nothing is gone, whatever the server may find again by its handle.
TEST(Names, WhatIsRenamedToItselfIsKnownStill) {
  Harness server({.by_handle = false});
  std::ofstream(server / "file") << "content";
  ASSERT_EQ(::link((server / "file").c_str(), (server / "link").c_str()), 0);
  std::ofstream(server / "single") << "content";
  ASSERT_EQ(::mkdir((server / "dir").c_str(), 0755), 0);
  const auto move = [&](std::string_view from, std::string_view to) {
    const Body where =
        Body().Add(fs::RenameRequest{}).Add(server.root()).Name(from).Add(server.root()).Name(to);
    return server.Ask(Opcode::kRename, where).errno_value();
  };
  using Names = std::pair<std::string_view, std::string_view>;
  for (const auto& [from, to] :
       {Names("single", "single"), Names("dir", "dir"), Names("file", "link")}) {
    const fs::Handle handle = server.Walk(from);
    EXPECT_EQ(move(from, to), 0) << from;
    EXPECT_TRUE(server.Ask(Opcode::kGetAttr, Body().Add(fs::GetAttrRequest{}).Add(handle)).ok())
        << from;
    EXPECT_EQ(::access((server / std::string(from)).c_str(), F_OK), 0) << from;
  }
}

TEST_F(NamesTest, HardLinksShareTheirInode) {
  EXPECT_EQ(Link("file", "dir/other"), 0);
  EXPECT_EQ(StatOf(server / "dir/other").st_ino, StatOf(server / "file").st_ino);
  EXPECT_EQ(server.Walk("dir/other"), server.Walk("file"));
  EXPECT_EQ(Link("file", "dir/other"), EEXIST);
  EXPECT_EQ(Link("dir", "dirlink"), EPERM);
  EXPECT_EQ(Link("link", "link2"), 0);
  EXPECT_TRUE(S_ISLNK(StatOf(server / "link2").st_mode));
}

TEST_F(NamesTest, SymlinksAreReadAndNeverFollowed) {
  const Answer target = server.Ask(Opcode::kReadlink, Body().Add(server.Walk("absolute")));
  ByteReader reader(target.body);
  EXPECT_EQ(AsText(reader.ReadSized16(fs::kMaxPathBytes)), "/etc/passwd");
  EXPECT_EQ(server.Ask(Opcode::kReadlink, Body().Add(server.Walk("file"))).errno_value(), EINVAL);
  EXPECT_EQ(server.Lookup(server.Walk("link"), "x").errno_value(), ENOTDIR);
  Body body;
  EXPECT_EQ(server.Ask(Opcode::kSymlink, Where(body, "s").Name("to/there")).errno_value(), 0);
  Body empty;
  EXPECT_EQ(server.Ask(Opcode::kSymlink, Where(empty, "t").Name("")).errno_value(), ENOENT);
}

TEST_F(NamesTest, StatFsAndAccess) {
  const Answer answer = server.Ask(Opcode::kStatFs, Body().Add(server.root()));
  struct statvfs stat {};
  ASSERT_EQ(::statvfs(server.dir().c_str(), &stat), 0);
  EXPECT_EQ(answer.As<fs::StatFsReply>().blocks, stat.f_blocks);
  EXPECT_EQ(answer.As<fs::StatFsReply>().name_max, stat.f_namemax);
  fs::AccessRequest access{};
  access.mask = X_OK;
  const int expected = Err(::access((server / "file").c_str(), X_OK));
  EXPECT_EQ(server.Ask(Opcode::kAccess, Body().Add(access).Add(server.Walk("file"))).errno_value(),
            expected);
  access.mask = R_OK | W_OK;
  EXPECT_EQ(server.Ask(Opcode::kAccess, Body().Add(access).Add(server.Walk("file"))).errno_value(),
            0);
  access.mask = 8;
  EXPECT_EQ(server.Ask(Opcode::kAccess, Body().Add(access).Add(server.root())).errno_value(),
            EINVAL);
}

// --- attributes

class AttrTest : public NamesTest {
 protected:
  Answer Set(const std::string& path, fs::SetAttrRequest request) {
    return server.Ask(Opcode::kSetAttr, Body().Add(request).Add(server.Walk(path)));
  }
};

TEST_F(AttrTest, EveryAttributeArrives) {
  fs::SetAttrRequest request{};
  request.valid = fs::kSetMode | fs::kSetSize | fs::kSetAtime | fs::kSetMtime;
  request.mode = 0640;
  request.size = 3;
  request.atime = {1000, 1};
  request.mtime = {-5, 999999999};  // before 1970
  const Answer answer = Set("file", request);
  ASSERT_TRUE(answer.ok());
  const struct stat stat = StatOf(server / "file");
  EXPECT_EQ(stat.st_mode & 07777U, 0640U);
  EXPECT_EQ(stat.st_size, 3);
  EXPECT_EQ(stat.st_atim.tv_nsec, 1);
  EXPECT_EQ(stat.st_mtim.tv_sec, -5);
  EXPECT_EQ(stat.st_mtim.tv_nsec, 999999999);
  EXPECT_EQ(answer.As<fs::AttrWire>().size, 3U);
}

TEST_F(AttrTest, NowAndOmit) {
  fs::SetAttrRequest request{};
  request.valid = fs::kSetMtime;
  request.mtime = {77, 0};
  ASSERT_TRUE(Set("file", request).ok());
  request.valid = fs::kSetAtimeNow;
  ASSERT_TRUE(Set("file", request).ok());
  const struct stat stat = StatOf(server / "file");
  EXPECT_EQ(stat.st_mtim.tv_sec, 77);
  EXPECT_GE(stat.st_atim.tv_sec, ::time(nullptr) - 5);
  request.valid = fs::kSetMtime;
  request.mtime = {77, 1'000'000'000};
  EXPECT_EQ(Set("file", request).errno_value(), EINVAL);
}

TEST_F(AttrTest, SymlinksHaveTimesAndOwnersOfTheirOwnButNoMode) {
  fs::SetAttrRequest request{};
  request.valid = fs::kSetMtime;
  request.mtime = {123, 456};
  ASSERT_TRUE(Set("link", request).ok());
  EXPECT_EQ(StatOf(server / "link").st_mtim.tv_sec, 123);
  EXPECT_NE(StatOf(server / "file").st_mtim.tv_sec, 123);
  request.valid = fs::kSetMode;
  request.mode = 0600;
  EXPECT_EQ(Set("link", request).errno_value(), EOPNOTSUPP);
  if (::geteuid() == 0) {
    request.valid = fs::kSetUid | fs::kSetGid;
    request.uid = 12;
    request.gid = 34;
    ASSERT_TRUE(Set("link", request).ok());
    EXPECT_EQ(StatOf(server / "link").st_uid, 12U);
    EXPECT_EQ(StatOf(server / "file").st_uid, ::geteuid());
  }
}

TEST_F(AttrTest, TruncatingWhatIsNoFile) {
  fs::SetAttrRequest request{};
  request.valid = fs::kSetSize;
  EXPECT_EQ(Set("dir", request).errno_value(), EISDIR);
  EXPECT_EQ(Set("fifo", request).errno_value(), EINVAL);
  request.size = ~std::uint64_t{0};
  EXPECT_EQ(Set("file", request).errno_value(), EFBIG);
}

TEST_F(AttrTest, ChownTakesSetuidAwayAsRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root";
  ASSERT_EQ(::chmod((server / "file").c_str(), 06755), 0);
  fs::SetAttrRequest request{};
  request.valid = fs::kSetUid;
  request.uid = 5;
  ASSERT_TRUE(Set("file", request).ok());
  EXPECT_EQ(StatOf(server / "file").st_mode & 07777U, 0755U);
  // In one request the mode counts, as rsync needs it.
  request.valid = fs::kSetUid | fs::kSetMode;
  request.mode = 04755;
  ASSERT_TRUE(Set("file", request).ok());
  EXPECT_EQ(StatOf(server / "file").st_mode & 07777U, 04755U);
  request.valid = fs::kSetSize | fs::kSetKillPriv;
  ASSERT_TRUE(Set("file", request).ok());
  EXPECT_EQ(StatOf(server / "file").st_mode & 07777U, 0755U);
}

TEST_F(AttrTest, TheChangeValueChangesWithEachChange) {
  const fs::AttrWire before = Harness::EntryIn(server.Lookup(server.root(), "file")).attr;
  EXPECT_EQ(Harness::EntryIn(server.Lookup(server.root(), "file")).attr.change, before.change);
  fs::SetAttrRequest request{};
  request.valid = fs::kSetMode;
  request.mode = 0600;
  const std::uint64_t once = Set("file", request).As<fs::AttrWire>().change;
  const std::uint64_t twice = Set("file", request).As<fs::AttrWire>().change;
  EXPECT_NE(once, before.change);
  EXPECT_NE(twice, once);
}

// --- extended attributes

class XattrTest : public NamesTest {
 protected:
  int Set(const std::string& path, const std::string& name, std::string_view value,
          std::uint32_t flags = 0) {
    fs::SetXattrRequest request{};
    request.flags = flags;
    return server
        .Ask(Opcode::kSetXattr,
             Body().Add(request).Add(server.Walk(path)).Name(name).Sized32(AsBytes(value)))
        .errno_value();
  }
  std::pair<int, std::string> Get(const std::string& path, const std::string& name,
                                  std::uint32_t size) {
    fs::GetXattrRequest request{};
    request.size = size;
    const Answer answer =
        server.Ask(Opcode::kGetXattr, Body().Add(request).Add(server.Walk(path)).Name(name));
    if (!answer.ok()) return {answer.errno_value(), {}};
    ByteReader reader(answer.body);
    reader.Read<fs::GetXattrReply>();
    return {0, std::string(AsText(reader.ReadSized32(fs::kMaxXattrValueBytes)))};
  }
  int Remove(const std::string& path, const std::string& name) {
    return server.Ask(Opcode::kRemoveXattr, Body().Add(server.Walk(path)).Name(name)).errno_value();
  }
};

TEST_F(XattrTest, SetGetListRemove) {
  const std::string file = plain / "file";
  if (::setxattr(file.c_str(), "user.probe", "1", 1, 0) != 0) {
    GTEST_SKIP() << "no user xattrs here";
  }
  EXPECT_EQ(Set("file", "user.a", "value"), 0);
  EXPECT_EQ(Set("file", "user.a", "v", XATTR_CREATE), EEXIST);
  EXPECT_EQ(Set("file", "user.b", "v", XATTR_REPLACE), ENODATA);
  EXPECT_EQ(Set("file", "user.a", "v", 8), EINVAL);
  EXPECT_EQ(Get("file", "user.a", 100).second, "value");
  EXPECT_EQ(Get("file", "user.a", 2).first, ERANGE);
  EXPECT_EQ(Get("file", "user.a", 0), std::pair(0, std::string()));
  EXPECT_EQ(Get("file", "user.none", 10).first, ENODATA);
  fs::GetXattrRequest list{};
  list.size = 1000;
  const Answer answer = server.Ask(Opcode::kListXattr, Body().Add(list).Add(server.Walk("file")));
  EXPECT_NE(AsText(answer.body).find(std::string("user.a\0", 7)), std::string_view::npos);
  EXPECT_EQ(Remove("file", "user.a"), 0);
  EXPECT_EQ(Remove("file", "user.a"), ENODATA);
  const auto expected = [&](const char* name) {
    return Err(::lsetxattr((plain / "link").c_str(), name, "1", 1, 0));
  };
  EXPECT_EQ(Set("link", "user.a", "1"), expected("user.a"));
  EXPECT_EQ(Set("fifo", "user.a", "1"),
            Err(::setxattr((plain / "fifo").c_str(), "user.a", "1", 1, 0)));
  EXPECT_EQ(Set("file", "nonsense.a", "1"), Err(::setxattr(file.c_str(), "nonsense.a", "1", 1, 0)));
}

}  // namespace
}  // namespace rdfs::server
