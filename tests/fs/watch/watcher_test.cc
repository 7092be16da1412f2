// When the watcher looks, on a scripted server: at directories that are empty and stay so.
#include "fs/watch/watcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fs/client/scripted_server.h"

namespace rdfs::fs::watch {
namespace {

using std::chrono_literals::operator""s;

AttrWire DirectoryAttr() {
  AttrWire attr{};
  attr.ino = 1;
  attr.mode = 0040755;
  attr.lease_ms = 60'000;  // no look is due unless something is recalled
  return attr;
}

std::vector<std::byte> Recall(std::uint64_t number, const std::string& directory) {
  std::array<std::byte, 256> bytes{};
  ByteWriter body(bytes);
  body.Write(RecallMessage{.number = number, .parts = kRecallAttributes});
  WriteHandle(body, *Handle::FromBytes(AsBytes(directory)));
  body.Write(Le16(0));
  ReplyHeader header{};
  header.opcode = static_cast<std::uint16_t>(Opcode::kRecall);
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.epoch = 1;
  const auto first = std::as_bytes(std::span(&header, 1));
  std::vector<std::byte> message(first.begin(), first.end());
  message.insert(message.end(), body.written().begin(), body.written().end());
  return message;
}

class WatcherTest : public testing::Test {
 protected:
  void SetUp() override {
    server_.SetHook([this](const auto& request, auto& reply) { Answer(request, reply); });
    client::MountOptions options;
    options.dial = server_.Dialer();
    options.export_name = "scripted";
    options.timeout = 20s;
    auto mount = client::Mount::Create(std::move(options), DeadlineAfter(10s));
    ASSERT_TRUE(mount.ok()) << mount.status().ToString();
    mount_ = *std::move(mount);
    auto output = Output::Start(silence_.get(), [] {});
    ASSERT_TRUE(output.ok()) << output.status().ToString();
    output_ = *std::move(output);
    auto watcher = Watcher::Create(*mount_, {}, /*recursive=*/false, *output_, stop_.get(),
                                   DeadlineAfter(10s));
    ASSERT_TRUE(watcher.ok()) << watcher.status().ToString();
    watcher_ = *std::move(watcher);
  }
  // On the lane's thread. A look begins with the directory's attributes.
  void Answer(const client::ScriptedServer::Request& request,
              client::ScriptedServer::Reply& reply) {
    const std::lock_guard lock(mutex_);
    ByteReader reader(request.body);
    if (request.opcode == Opcode::kLookup) {
      (void)ReadHandle(reader);
      std::array<std::byte, 256> bytes{};
      ByteWriter writer(bytes);
      WriteEntry(writer, {.handle = *Handle::FromBytes(reader.ReadSized16(kMaxNameBytes)),
                          .attr = DirectoryAttr(),
                          .entry_lease_ms = 60'000});
      reply.body.assign(writer.written().begin(), writer.written().end());
      if (everything_) reply.before = Recall(kRecallEarlier, "d0");
    } else if (request.opcode == Opcode::kGetAttr) {
      (void)reader.Read<GetAttrRequest>();
      looks_.emplace_back(AsText(ReadHandle(reader).bytes()));
      const AttrWire attr = DirectoryAttr();
      const auto body = std::as_bytes(std::span(&attr, 1));
      reply.body.assign(body.begin(), body.end());
      if (looks_.size() == 1 && !recalled_.empty()) reply.before = Recall(77, recalled_);
      if (looks_.size() == enough_) eventfd_write(stop_.get(), 1);
    }
  }
  // The first looks, `enough` of them or one more, where every directory is due at once and
  // `recalled` is recalled besides, during the first.
  std::vector<std::string> Looks(std::size_t enough, const std::string& recalled) {
    {
      const std::lock_guard lock(mutex_);
      looks_.clear();
      enough_ = enough;
      recalled_ = recalled;
      everything_ = true;
    }
    EXPECT_TRUE(watcher_->Add("d0", "d0").ok());  // looks it up, and knows it already
    std::this_thread::sleep_for(2 * Watcher::kPause);
    watcher_->Run();
    eventfd_t told = 0;
    EXPECT_EQ(eventfd_read(stop_.get(), &told), 0);
    const std::lock_guard lock(mutex_);
    return looks_;
  }

  const Fd silence_{open("/dev/null", O_WRONLY | O_CLOEXEC)};
  const Fd stop_{eventfd(0, EFD_CLOEXEC)};
  std::mutex mutex_;
  std::vector<std::string> looks_;  // under mutex_
  std::string recalled_;            // under mutex_
  std::size_t enough_ = 0;          // under mutex_
  bool everything_ = false;         // under mutex_
  client::ScriptedServer server_;
  std::unique_ptr<client::Mount> mount_;
  std::unique_ptr<Output> output_;
  std::unique_ptr<Watcher> watcher_;
};

TEST_F(WatcherTest, WhatHasChangedDoesNotWaitBehindLeasesThatRunOut) {
  constexpr std::size_t kMany = 40;
  for (std::size_t i = 0; i < kMany; ++i) {
    const std::string name = "d" + std::to_string(i);
    ASSERT_TRUE(watcher_->Add(name, name).ok());
  }
  const std::vector<std::string> round = Looks(kMany, {});
  ASSERT_EQ(round.size(), kMany);
  const std::vector<std::string> looks = Looks(3, round.back());
  ASSERT_NE(looks.front(), round.back());
  const auto found = std::find(looks.begin(), looks.end(), round.back());
  EXPECT_LE(found - looks.begin(), 2);
}

}  // namespace
}  // namespace rdfs::fs::watch
