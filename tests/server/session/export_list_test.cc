// What a server offers, while it is read again.
#include "server/session/export_list.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

ExportSpec Spec(const char* name, const std::string& directory) {
  ExportSpec out;
  out.name = name;
  out.directory = directory;
  return out;
}

// Of the directory that new mounts find.
std::uint64_t Offered(ExportList& list, const char* name) {
  const auto offer = list.Find(name);
  return offer ? offer->inodes->root().inode->key.inode : 0;
}

std::uint64_t InodeOf(const std::string& path) {
  struct stat out {};
  EXPECT_EQ(::stat(path.c_str(), &out), 0);
  return out.st_ino;
}

TEST(ExportList, ADirectoryThatWasMadeAnewIsOfferedFromTheReloadOn) {
  Harness server;
  const TempDir base;
  const std::string path = base / "export", other = base / "other";
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  ExportList::Options options;
  options.secret = HandleSecret::Random();
  options.pool_bytes = 32 << 20;
  const auto before = server.core().opened_by_another;
  ExportList list(options, server.core());
  const ExportSpec spec = Spec("one", path);
  ASSERT_TRUE(list.Add(spec, {}).ok());
  const Offer first = *list.Find("one");
  const AccessClass& access = list.ClassOf(first, "key");

  // The same one is the same export.
  ASSERT_TRUE(list.Reload({spec}).ok());
  EXPECT_EQ(list.Find("one")->inodes, first.inodes);

  ASSERT_EQ(::rename(path.c_str(), other.c_str()), 0);
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  EXPECT_EQ(Offered(list, "one"), InodeOf(other));
  ASSERT_TRUE(list.Reload({spec}).ok());
  EXPECT_EQ(Offered(list, "one"), InodeOf(path));
  EXPECT_EQ(list.Names().size(), 1U);
  // Its mounts have nothing of the old one's, which is there for its own.
  EXPECT_EQ(list.ClassOf(*list.Find("one"), "key").inodes, list.Find("one")->inodes);
  EXPECT_EQ(access.inodes, first.inodes);
  EXPECT_TRUE(list.Has(ExportIdOf(*first.inodes)));

  // What comes back is the export that it was.
  ASSERT_EQ(::rmdir(path.c_str()), 0);
  EXPECT_TRUE(list.Find("one")->exported->IsRemoved());
  EXPECT_FALSE(list.Reload({spec}).ok());
  ASSERT_EQ(::rename(other.c_str(), path.c_str()), 0);
  ASSERT_TRUE(list.Reload({spec}).ok());
  EXPECT_EQ(list.Find("one")->inodes, first.inodes);
  EXPECT_FALSE(list.Find("one")->exported->IsRemoved());

  // Nor is an old one offered in its stead.
  ASSERT_TRUE(list.Reload({}).ok());
  EXPECT_FALSE(list.Find("one"));
  EXPECT_FALSE(list.Reload({Spec("one", server.dir())}).ok());
  list.StopWatching();
  server.core().opened_by_another = before;
}

TEST(ExportList, NobodyWaitsForADirectoryThatDoesNotAnswer) {
  constexpr std::chrono::seconds kPatience{20};
  Harness server;
  const TempDir second;
  const ExportSpec one = Spec("one", server.dir()), two = Spec("two", second.path());

  std::promise<void> reached, answer;
  ExportList::Options options;
  options.secret = HandleSecret::Random();
  options.open = [&](const ExportSpec& opened) {
    if (opened.name == "two") {
      reached.set_value();
      answer.get_future().wait();
    }
    return Export::Create(opened);
  };
  const auto before = server.core().opened_by_another;
  ExportList list(options, server.core());
  ASSERT_TRUE(list.Add(one, {}).ok());
  auto reloading = std::async(std::launch::async, [&] { return list.Reload({one, two}); });
  EXPECT_EQ(reached.get_future().wait_for(kPatience), std::future_status::ready);

  auto asking = std::async(std::launch::async, [&] {
    (void)list.Age(1000);
    return list.Find("one").has_value() && !list.Find("two") && list.Names().size() == 1;
  });
  EXPECT_EQ(asking.wait_for(kPatience), std::future_status::ready);
  answer.set_value();
  EXPECT_TRUE(asking.get());
  EXPECT_TRUE(reloading.get().ok());
  EXPECT_TRUE(list.Find("one") && list.Find("two"));
  list.StopWatching();
  server.core().opened_by_another = before;
}

}  // namespace
}  // namespace rdfs::server
