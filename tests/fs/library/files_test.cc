// What librdfs does to files and names, and how it says what went wrong.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <stop_token>
#include <thread>

#include "fs/client/sync_client.h"
#include "tests/fs/library/fixture.h"

namespace rdfs::fs::library {
namespace {

INSTANTIATE_TEST_SUITE_P(Over, Library, testing::ValuesIn(Transports()), NameOf);

bool Says(const char* sentence, std::string_view part) {
  return std::string_view(sentence).find(part) != std::string_view::npos;
}

TEST_P(Library, WritesAndReadsAnyLength) {
  for (const std::size_t size : {0UL, 1UL, 4096UL, 262'144UL, 3'000'001UL}) {
    const std::string text = RandomText(size, 1);
    rdfs_file* file = Open("file", O_RDWR | O_CREAT | O_TRUNC);
    ASSERT_EQ(rdfs_pwrite(queue_, file, text.data(), size, 0), static_cast<ssize_t>(size));
    ASSERT_EQ(rdfs_fsync(queue_, file, 0), 0);
    EXPECT_EQ(Content("file"), text);
    // More than there is: short at the end.
    std::string back(size + 1000, 'x');
    ASSERT_EQ(rdfs_pread(queue_, file, back.data(), back.size(), 0), static_cast<ssize_t>(size));
    EXPECT_EQ(back.substr(0, size), text);
    EXPECT_EQ(rdfs_pread(queue_, file, back.data(), 10, size + 5), 0);
    ASSERT_EQ(rdfs_close(queue_, file), 0);
  }
}

TEST_P(Library, OpensAsOpen2Does) {
  rdfs_file* file = nullptr;
  EXPECT_EQ(rdfs_open(queue_, "none", O_RDONLY, 0, &file), -ENOENT);
  EXPECT_TRUE(Says(rdfs_sentence(queue_), "opening 'none': No such file")) << rdfs_sentence(queue_);
  ASSERT_EQ(rdfs_close(queue_, Open("/made", O_WRONLY | O_CREAT | O_EXCL, 0640)), 0);
  EXPECT_EQ(std::filesystem::status(Path("made")).permissions(), std::filesystem::perms(0640));
  EXPECT_EQ(rdfs_open(queue_, "made", O_WRONLY | O_CREAT | O_EXCL, 0640, &file), -EEXIST);
  EXPECT_EQ(rdfs_open(queue_, "made/x", O_RDONLY, 0, &file), -ENOTDIR);
  EXPECT_EQ(rdfs_open(queue_, "made/", O_RDONLY, 0, &file), -ENOTDIR);
  EXPECT_EQ(rdfs_open(queue_, "/", O_RDONLY, 0, &file), -EISDIR);
  EXPECT_EQ(rdfs_open(queue_, "", O_RDONLY, 0, &file), -ENOENT);
  EXPECT_EQ(rdfs_open(queue_, "made", O_RDONLY | O_DIRECTORY, 0, &file), -EINVAL);

  file = Open("made", O_WRONLY | O_APPEND);
  const std::string text = RandomText(600'000, 2);
  ASSERT_EQ(rdfs_pwrite(queue_, file, "first", 5, 99), 5);
  ASSERT_EQ(rdfs_pwrite(queue_, file, text.data(), text.size(), 0),
            static_cast<ssize_t>(text.size()));
  EXPECT_EQ(Content("made"), "first" + text);
  EXPECT_EQ(rdfs_truncate(queue_, file, 3), 0);
  rdfs_attributes attributes{};
  EXPECT_EQ(rdfs_fstat(queue_, file, &attributes), 0);
  EXPECT_EQ(attributes.size, 3U);
  ASSERT_EQ(rdfs_close(queue_, file), 0);
  ASSERT_EQ(rdfs_close(queue_, Open("made", O_WRONLY | O_TRUNC)), 0);
  EXPECT_EQ(Content("made"), "");
}

TEST_P(Library, ChangesNames) {
  EXPECT_EQ(rdfs_mkdir(queue_, "a", 0755), 0);
  EXPECT_EQ(rdfs_mkdir(queue_, "a", 0755), -EEXIST);
  EXPECT_EQ(rdfs_mkdir(queue_, "a/b/", 0755), 0);
  EXPECT_EQ(rdfs_mkdir(queue_, "no/b", 0755), -ENOENT);
  EXPECT_EQ(rdfs_mkdir(queue_, "a/..", 0755), -EINVAL);
  Put("a/b/x", "content");
  EXPECT_EQ(rdfs_rename(queue_, "a/b/x", "a/y", 0), 0);
  EXPECT_EQ(Content("a/y"), "content");
  Put("z", "other");
  EXPECT_EQ(rdfs_rename(queue_, "a/y", "z", RENAME_NOREPLACE), -EEXIST);
  EXPECT_EQ(rdfs_rename(queue_, "a/y", "z", 77), -EINVAL);
  EXPECT_EQ(rdfs_rename(queue_, "a/y", "z", RENAME_EXCHANGE), 0);
  EXPECT_EQ(Content("z"), "content");
  EXPECT_EQ(rdfs_rmdir(queue_, "a"), -ENOTEMPTY);
  EXPECT_EQ(rdfs_rmdir(queue_, "a/b"), 0);
  EXPECT_EQ(rdfs_unlink(queue_, "a/y"), 0);
  EXPECT_EQ(rdfs_unlink(queue_, "a/y"), -ENOENT);
  EXPECT_EQ(rdfs_rmdir(queue_, "a"), 0);
  EXPECT_FALSE(std::filesystem::exists(Path("a")));
}

TEST_P(Library, ASlashAtTheEndMeansADirectory) {
  Put("file", "kept");
  ASSERT_EQ(rdfs_mkdir(queue_, "dir//", 0755), 0);
  std::filesystem::create_symlink("dir", Path("link"));
  EXPECT_EQ(rdfs_unlink(queue_, "file/"), -ENOTDIR);
  EXPECT_EQ(rdfs_unlink(queue_, "link/"), -ENOTDIR);
  EXPECT_EQ(rdfs_unlink(queue_, "dir/"), -EISDIR);
  EXPECT_EQ(rdfs_unlink(queue_, "none/"), -ENOENT);
  EXPECT_EQ(rdfs_rename(queue_, "file/", "x", 0), -ENOTDIR);
  EXPECT_EQ(rdfs_rename(queue_, "file", "x/", 0), -ENOTDIR);
  EXPECT_EQ(rdfs_rename(queue_, "link/", "x", 0), -ENOTDIR);
  EXPECT_EQ(rdfs_rename(queue_, "none/", "x", 0), -ENOENT);
  EXPECT_EQ(rdfs_symlink(queue_, "file", "new/"), -ENOENT);
  EXPECT_EQ(rdfs_symlink(queue_, "file", "dir/"), -EEXIST);
  rdfs_file* file = nullptr;
  EXPECT_EQ(rdfs_open(queue_, "new/", O_CREAT | O_WRONLY, 0644, &file), -EISDIR);
  EXPECT_EQ(rdfs_open(queue_, "file/", O_RDONLY, 0, &file), -ENOTDIR);
  EXPECT_EQ(rdfs_rmdir(queue_, "file/"), -ENOTDIR);
  EXPECT_EQ(Content("file"), "kept");
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
  EXPECT_EQ(rdfs_rename(queue_, "dir/", "moved/", 0), 0);
  EXPECT_EQ(rdfs_rmdir(queue_, "moved/"), 0);
}

TEST_P(Library, ADotBehindANameMeansADirectory) {
  Put("file", "kept");
  ASSERT_EQ(rdfs_mkdir(queue_, "dir", 0755), 0);
  ASSERT_EQ(rdfs_symlink(queue_, "dir", "link"), 0);
  ASSERT_EQ(rdfs_symlink(queue_, "dir/.", "dotted"), 0);
  rdfs_file* file = nullptr;
  rdfs_attributes attributes{};
  EXPECT_EQ(rdfs_open(queue_, "file/.", O_RDONLY, 0, &file), -ENOTDIR);
  EXPECT_EQ(rdfs_open(queue_, "new/.", O_CREAT | O_WRONLY, 0644, &file), -ENOENT);
  EXPECT_EQ(rdfs_open(queue_, "dir/.", O_CREAT | O_WRONLY, 0644, &file), -EISDIR);
  EXPECT_EQ(rdfs_stat(queue_, "file/.", 0, &attributes), -ENOTDIR);
  EXPECT_EQ(rdfs_unlink(queue_, "file/."), -ENOTDIR);
  EXPECT_EQ(rdfs_unlink(queue_, "file/./"), -ENOTDIR);
  EXPECT_EQ(rdfs_unlink(queue_, "dir/."), -EINVAL);
  EXPECT_EQ(rdfs_rmdir(queue_, "dir/."), -EINVAL);
  EXPECT_EQ(rdfs_rmdir(queue_, "dir/./"), -EINVAL);
  EXPECT_EQ(rdfs_mkdir(queue_, "new/.", 0755), -ENOENT);
  EXPECT_EQ(rdfs_symlink(queue_, "file", "new/."), -ENOENT);
  EXPECT_EQ(rdfs_rename(queue_, "dir/.", "x", 0), -EINVAL);
  EXPECT_EQ(rdfs_rename(queue_, "dir/./", "x", 0), -EBUSY);
  EXPECT_EQ(rdfs_rename(queue_, "file/.", "x", 0), -ENOTDIR);
  EXPECT_EQ(rdfs_rename(queue_, "file", "x/.", 0), -ENOENT);
  EXPECT_EQ(Content("file"), "kept");
  EXPECT_TRUE(std::filesystem::is_directory(Path("dir")));
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
  for (const char* path : {"dir/.", "link/.", "dotted", ".", "./dir/./.", "dir/./../link/."}) {
    const int flags = std::string_view(path) == "dotted" ? 0 : AT_SYMLINK_NOFOLLOW;
    EXPECT_EQ(rdfs_stat(queue_, path, flags, &attributes), 0) << path;
    EXPECT_TRUE(S_ISDIR(attributes.mode)) << path;
  }
}

TEST_P(Library, FollowsPathsAsIfTheExportWereTheRoot) {
  std::filesystem::create_directories(Path("d/e"));
  Put("d/e/file", "here");
  ASSERT_EQ(rdfs_symlink(queue_, "../d/./e", "d/relative"), 0);
  ASSERT_EQ(rdfs_symlink(queue_, "/d/relative/file", "absolute"), 0);
  ASSERT_EQ(rdfs_symlink(queue_, "../../../../d", "outside"), 0);
  ASSERT_EQ(rdfs_symlink(queue_, "loop", "loop"), 0);
  ASSERT_EQ(rdfs_symlink(queue_, "nowhere", "dangling"), 0);
  rdfs_attributes attributes{};
  for (const char* path : {"d/e/file", "//d//e/./file", "d/relative/file", "absolute",
                           "outside/e/file", "../../d/e/../e/file"}) {
    EXPECT_EQ(rdfs_stat(queue_, path, 0, &attributes), 0) << path;
    EXPECT_EQ(attributes.size, 4U) << path;
    EXPECT_TRUE(S_ISREG(attributes.mode)) << path;
  }
  EXPECT_EQ(rdfs_stat(queue_, "loop", 0, &attributes), -ELOOP);
  EXPECT_EQ(rdfs_stat(queue_, "dangling", 0, &attributes), -ENOENT);
  EXPECT_EQ(rdfs_stat(queue_, "absolute", AT_SYMLINK_NOFOLLOW, &attributes), 0);
  EXPECT_TRUE(S_ISLNK(attributes.mode));
  EXPECT_EQ(rdfs_stat(queue_, "/..", 0, &attributes), 0);
  EXPECT_TRUE(S_ISDIR(attributes.mode));
  std::string text(4096, '\0');
  EXPECT_EQ(rdfs_readlink(queue_, "absolute", text.data(), text.size()), 16);
  EXPECT_EQ(text.substr(0, 16), "/d/relative/file");
  EXPECT_EQ(rdfs_readlink(queue_, "absolute", text.data(), 3), 3);
  EXPECT_EQ(rdfs_readlink(queue_, "d", text.data(), text.size()), -EINVAL);
  rdfs_file* file = nullptr;
  EXPECT_EQ(rdfs_open(queue_, "absolute", O_RDONLY | O_NOFOLLOW, 0, &file), -ELOOP);
  // What a dangling symlink points at is made, as open(2) does.
  ASSERT_EQ(rdfs_close(queue_, Open("dangling", O_WRONLY | O_CREAT)), 0);
}

TEST_P(Library, ListsEverything) {
  rdfs_listing* listing = nullptr;
  std::filesystem::create_directory(Path("empty"));
  ASSERT_EQ(rdfs_list(queue_, "empty", &listing), 0);
  EXPECT_EQ(rdfs_listing_count(listing), 0U);
  EXPECT_EQ(rdfs_listing_name(listing, 0), nullptr);
  rdfs_listing_free(listing);

  // More than one page of the protocol's.
  std::filesystem::create_directory(Path("many"));
  std::set<std::string> expected;
  for (int i = 0; i < 1500; ++i) {
    expected.insert("name-" + std::to_string(i));
    Put("many/name-" + std::to_string(i), std::string(static_cast<std::size_t>(i), 'x'));
  }
  ASSERT_EQ(rdfs_list(queue_, "many/", &listing), 0);
  std::set<std::string> found;
  for (std::size_t i = 0; i < rdfs_listing_count(listing); ++i) {
    const std::string name = rdfs_listing_name(listing, i);
    found.insert(name);
    const rdfs_attributes* attributes = rdfs_listing_attributes(listing, i);
    ASSERT_NE(attributes, nullptr);
    EXPECT_EQ("name-" + std::to_string(attributes->size), name);
  }
  EXPECT_EQ(rdfs_listing_count(listing), expected.size());
  EXPECT_EQ(found, expected);
  rdfs_listing_free(listing);

  Put("file", "");
  EXPECT_EQ(rdfs_list(queue_, "file", &listing), -ENOTDIR);
  EXPECT_EQ(rdfs_list(queue_, "none", &listing), -ENOENT);
}

// The server's listing says nothing of what may be on its way from another client.
TEST_P(Library, ListsWhatSomebodyElseIsWriting) {
  using std::chrono::seconds;
  Put("file", "content");
  client::MountOptions options;
  options.dial = server_.Dialer(transport::Kind::kTcp);
  options.export_name = "live";
  options.uid = getuid();
  options.gid = getgid();
  auto mount = client::Mount::Create(std::move(options), DeadlineAfter(seconds(10)));
  ASSERT_TRUE(mount.ok()) << mount.status().ToString();
  auto lane = (*mount)->OpenLane(DeadlineAfter(seconds(10)));
  ASSERT_TRUE(lane.ok()) << lane.status().ToString();
  client::SyncClient writer(*std::move(lane), {.uid = getuid(), .gid = getgid(), .pid = 1});
  const Handle root = (*mount)->info().root.handle;
  const auto file = writer.Lookup(root, "file");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  // None while the server has yet to hear of what made the file.
  auto open = writer.Open(file->handle, kOpenWrite | kOpenWriteLease);
  for (int i = 0; i < 100 && open.ok() && open->write_lease <= BootClock::now(); ++i) {
    EXPECT_TRUE(writer.Release(open->open).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    open = writer.Open(file->handle, kOpenWrite | kOpenWriteLease);
  }
  ASSERT_TRUE(open.ok()) << open.status().ToString();
  EXPECT_GT(open->write_lease, BootClock::now());
  const std::jthread acknowledges([&writer, root](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_TRUE(writer.GetAttr(root).ok());
  });
  rdfs_listing* listing = nullptr;
  ASSERT_EQ(rdfs_list(queue_, "/", &listing), 0);
  ASSERT_EQ(rdfs_listing_count(listing), 1U);
  const rdfs_attributes* attributes = rdfs_listing_attributes(listing, 0);
  ASSERT_NE(attributes, nullptr);
  EXPECT_EQ(attributes->size, 7U);
  rdfs_listing_free(listing);
}

TEST_P(Library, GoesOnWhenTheServerIsStartedAnew) {
  Put("file", "content");
  rdfs_file* file = Open("file", O_RDONLY);
  server_.KillWorker();
  std::string text(7, 'x');
  EXPECT_EQ(rdfs_pread(queue_, file, text.data(), 7, 0), 7) << rdfs_sentence(queue_);
  EXPECT_EQ(text, "content");
  EXPECT_EQ(rdfs_mkdir(queue_, "d", 0755), 0) << rdfs_sentence(queue_);
  EXPECT_EQ(rdfs_close(queue_, file), 0);
}

TEST_P(Library, AChildClosesNothingOfItsParents) {
  Put("file", "content");
  rdfs_file* file = Open("file", O_RDONLY);
  rdfs_buffer* buffer = rdfs_buffer_alloc(queue_, 4096);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool closed = rdfs_close(queue_, file) == 0;
    rdfs_buffer_free(buffer);
    rdfs_queue_close(queue_);
    _exit(closed && rdfs_disconnect(export_) == 0 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::string text(7, 'x');
  EXPECT_EQ(rdfs_pread(queue_, file, text.data(), 7, 0), 7) << rdfs_sentence(queue_);
  EXPECT_EQ(text, "content");
  EXPECT_EQ(rdfs_close(queue_, file), 0);
  rdfs_buffer_free(buffer);
}

TEST_P(Library, SaysWhyItCannotConnect) {
  rdfs_export* none = nullptr;
  rdfs_error error{};
  EXPECT_EQ(rdfs_connect("nonsense", nullptr, 0, &none, &error), -EINVAL);
  EXPECT_TRUE(Says(error.sentence, "'nonsense' is not a source")) << error.sentence;
  EXPECT_EQ(rdfs_connect(Source().c_str(), "nonsense", 0, &none, &error), -EINVAL);
  EXPECT_TRUE(Says(error.sentence, "there is no such option")) << error.sentence;
  EXPECT_EQ(rdfs_connect(Source().c_str(), "plaintext,require_encryption", 0, &none, &error),
            -EINVAL);
  EXPECT_TRUE(Says(error.sentence, "exclude each other")) << error.sentence;
  EXPECT_EQ(rdfs_connect(Source().c_str(), "key_file=/nonexistent", 0, &none, &error), -ENOENT);
  EXPECT_LT(rdfs_connect((Source() + "x").c_str(), "deadline=5", 0, &none, nullptr), 0);
  EXPECT_EQ(rdfs_connect(nullptr, nullptr, 0, &none, &error), -EINVAL);
  EXPECT_EQ(none, nullptr);

  std::string text(200, 'x');
  const int length = rdfs_transport(export_, text.data(), text.size());
  EXPECT_GE(length, 3);
  EXPECT_TRUE(text.starts_with(GetParam())) << text;
  EXPECT_STREQ(rdfs_version(), RDFS_VERSION);
}

TEST_P(Library, ReadOnlyMeansIt) {
  rdfs_export* mine = nullptr;
  rdfs_queue* queue = nullptr;
  ASSERT_EQ(rdfs_connect(Source().c_str(), "ro", 0, &mine, nullptr), 0);
  ASSERT_EQ(rdfs_queue_open(mine, &queue, nullptr), 0);
  EXPECT_EQ(rdfs_mkdir(queue, "d", 0755), -EROFS);
  EXPECT_TRUE(Says(rdfs_sentence(queue), "read-only")) << rdfs_sentence(queue);
  rdfs_queue_close(queue);
  EXPECT_EQ(rdfs_disconnect(mine), 0);
}

}  // namespace
}  // namespace rdfs::fs::library
