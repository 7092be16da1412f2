// What a server offers, while it is read again.
#include "server/session/export_list.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/server_harness.h"

namespace rdfs::server {
namespace {

TEST(ExportList, ADirectoryThatWasMadeAnewIsToldAndNotServedForTheOther) {
  Harness server;
  const TempDir base;
  const std::string path = base / "export", other = base / "other";
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  ExportSpec spec;
  spec.name = "one";
  spec.directory = path;
  ExportList::Options options;
  options.secret = HandleSecret::Random();
  const auto before = server.core().opened_by_another;
  ExportList list(options, server.core());
  ASSERT_TRUE(list.Add(spec, {}).ok());
  const InodeTable* const first = list.Find("one")->inodes;

  ASSERT_EQ(::rename(path.c_str(), other.c_str()), 0);
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  const Status refused = list.Reload({spec});
  EXPECT_NE(refused.message().find("was made anew"), std::string::npos) << refused.message();
  EXPECT_EQ(list.Find("one")->inodes, first);

  // What comes back is the export that it was.
  ASSERT_EQ(::rmdir(path.c_str()), 0);
  ASSERT_EQ(::rename(other.c_str(), path.c_str()), 0);
  EXPECT_TRUE(list.Reload({spec}).ok());
  EXPECT_EQ(list.Find("one")->inodes, first);
  list.StopWatching();
  server.core().opened_by_another = before;
}

TEST(ExportList, NobodyWaitsForADirectoryThatDoesNotAnswer) {
  constexpr std::chrono::seconds kPatience{20};
  Harness server;
  const TempDir second;
  const auto spec = [](const char* name, const std::string& directory) {
    ExportSpec out;
    out.name = name;
    out.directory = directory;
    return out;
  };
  const ExportSpec one = spec("one", server.dir()), two = spec("two", second.path());

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
