// A mount on a ScriptedServer, with one lane driven by the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "fs/client/sync_client.h"
#include "tests/fs/client/scripted_server.h"

namespace rdfs::fs::client {

class ScriptedTest : public testing::Test {
 protected:
  void SetUp() override { Mount(std::chrono::seconds(20)); }

  void Mount(std::chrono::milliseconds timeout) {
    client_.reset();
    mount_.reset();
    MountOptions options;
    options.dial = server_.Dialer();
    options.export_name = "scripted";
    options.timeout = timeout;
    auto mount = client::Mount::Create(std::move(options), DeadlineAfter(std::chrono::seconds(10)));
    ASSERT_TRUE(mount.ok()) << mount.status().ToString();
    mount_ = *std::move(mount);
    if (finder_) mount_->SetPathFinder(finder_);
    client_ = OpenClient();
    root_ = mount_->info().root.handle;
  }
  std::unique_ptr<SyncClient> OpenClient() {
    auto lane = mount_->OpenLane(DeadlineAfter(std::chrono::seconds(10)));
    EXPECT_TRUE(lane.ok()) << lane.status().ToString();
    return std::make_unique<SyncClient>(*std::move(lane));
  }
  OpenPtr Open() {
    const auto opened = client_->Open(file_, kOpenRead | kOpenWrite);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return opened.ok() ? opened->open : nullptr;
  }
  // Whether the server's bytes are `got` from `offset` on.
  void ExpectFile(const Result<std::vector<std::byte>>& got, std::size_t offset) {
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    const std::vector<std::byte> file = server_.file();
    ASSERT_LE(offset + got->size(), file.size());
    EXPECT_TRUE(
        std::equal(got->begin(), got->end(), file.begin() + static_cast<std::ptrdiff_t>(offset)));
  }

  ScriptedServer server_;
  PathFinder finder_;
  std::unique_ptr<client::Mount> mount_;
  std::unique_ptr<SyncClient> client_;
  Handle root_;
  const Handle file_ = *Handle::FromBytes(AsBytes("file"));
};

}  // namespace rdfs::fs::client
