// A real rdfsd over each transport (verbs in tests/rdma), while the client's connection breaks at
// every step of a row of operations, and while completions are late, posts are refused and
// connections end by chance: each operation is done exactly once, and the client is told nothing of
// it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "fs/client/sync_client.h"
#include "tests/fs/client/rdfsd.h"
#include "tests/transport/kinds.h"
#include "transport/fault/transport.h"

namespace rdfs::fs::client {
namespace {

namespace fault = transport::fault;
namespace files = std::filesystem;
using std::chrono::seconds;
using transport::Kind;

// The plan for the n-th connection that the client makes, from 0.
using Plans = std::function<fault::Plan(std::uint64_t)>;

class FaultySession final : public transport::Session {
 public:
  FaultySession(std::unique_ptr<Session> inner, Plans plans,
                std::shared_ptr<std::atomic<std::uint64_t>> made)
      : inner_(std::move(inner)), plans_(std::move(plans)), made_(std::move(made)) {}

  [[nodiscard]] std::uint64_t id() const override { return inner_->id(); }
  [[nodiscard]] ByteSpan grant() const override { return inner_->grant(); }
  [[nodiscard]] const std::shared_ptr<transport::Domain>& domain() const override {
    return inner_->domain();
  }
  [[nodiscard]] transport::session::Secret32 exporter() const override {
    return inner_->exporter();
  }
  Result<std::unique_ptr<transport::Connection>> OpenLane(Deadline deadline) override {
    return Break(inner_->OpenLane(deadline));
  }
  Result<std::unique_ptr<transport::Connection>> OpenStreamLane(Deadline deadline) override {
    return Break(inner_->OpenStreamLane(deadline));
  }
  Result<std::unique_ptr<transport::Connection>> OpenDirectLane(Deadline deadline) override {
    return Break(inner_->OpenDirectLane(deadline));
  }
  Result<std::unique_ptr<transport::Connection>> OpenLaneOver(Kind kind,
                                                              Deadline deadline) override {
    return Break(inner_->OpenLaneOver(kind, deadline));
  }
  void RuleOut(Kind kind, Status why) override { inner_->RuleOut(kind, std::move(why)); }
  [[nodiscard]] const std::vector<transport::LegReport>& legs() const override {
    return inner_->legs();
  }
  [[nodiscard]] std::string ExplainChoice() const override { return inner_->ExplainChoice(); }

 private:
  Result<std::unique_ptr<transport::Connection>> Break(
      Result<std::unique_ptr<transport::Connection>> lane) {
    if (!lane.ok()) return lane;
    return fault::Wrap(*std::move(lane), plans_(made_->fetch_add(1)));
  }

  const std::unique_ptr<Session> inner_;
  const Plans plans_;
  const std::shared_ptr<std::atomic<std::uint64_t>> made_;
};

class Steps : public testing::TestWithParam<Kind> {
 protected:
  // Returns how many connections were made.
  std::uint64_t RowUnder(const Plans& plans) {
    auto made = std::make_shared<std::atomic<std::uint64_t>>(0);
    MountOptions options;
    options.dial = [dial = server_.Dialer(GetParam()), plans, made](
                       std::vector<std::byte> request, std::shared_ptr<transport::Domain> domain,
                       Deadline deadline) -> Result<std::unique_ptr<transport::Session>> {
      auto session = dial(std::move(request), std::move(domain), deadline);
      if (!session.ok()) return session;
      return std::unique_ptr<transport::Session>(
          std::make_unique<FaultySession>(*std::move(session), plans, made));
    };
    options.export_name = "live";
    options.uid = getuid();
    options.gid = getgid();
    options.timeout = seconds(20);
    auto mount = Mount::Create(std::move(options), DeadlineAfter(seconds(20)));
    EXPECT_TRUE(mount.ok()) << mount.status().ToString();
    auto lane = (*mount)->OpenLane(DeadlineAfter(seconds(20)));
    EXPECT_TRUE(lane.ok()) << lane.status().ToString();
    SyncClient client(*std::move(lane), CallContext{.uid = getuid(), .gid = getgid(), .pid = 1});
    Row(client, (*mount)->info().root.handle);
    return made->load();
  }

  void Row(SyncClient& fs, const Handle& root) {
    const std::string name = "row-" + std::to_string(rows_++);
    const auto directory = fs.Mkdir(root, name);
    ASSERT_TRUE(directory.ok()) << directory.status().ToString();
    const Handle& here = directory->handle;
    const auto made =
        fs.Create(here, "file", kOpenRead | kOpenWrite | kOpenCreate | kOpenExclusive);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    const OpenPtr open = made->open;
    std::vector<std::byte> bytes(100'000);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
    Expect(fs.Write(open, 0, ByteSpan(bytes).first(3'000)).status());
    Expect(fs.Write(open, 3'000, ByteSpan(bytes).subspan(3'000)).status());  // through staging
    Expect(fs.Fsync(open));
    ExpectBytes(fs.Read(open, 0, bytes.size() + 1), bytes);
    const auto log =
        fs.Create(here, "log", kOpenWrite | kOpenAppend | kOpenCreate | kOpenExclusive);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    Expect(fs.Write(log->open, 0, AsBytes("one "), kWriteAppend).status());
    Expect(fs.Write(log->open, 0, AsBytes("two"), kWriteAppend).status());
    Expect(fs.Link(made->file.handle, here, "link").status());
    Expect(fs.Rename(here, "file", here, "renamed"));
    Expect(fs.Symlink(here, "symlink", "renamed").status());
    Expect(fs.SetXattr(made->file.handle, "user.x", AsBytes("value"), 1));  // XATTR_CREATE
    Expect(fs.RemoveXattr(made->file.handle, "user.x"));
    Expect(fs.Unlink(here, "link"));
    SetAttributes shorter{.valid = kSetSize};
    shorter.size = 5'000;
    Expect(fs.SetAttr(made->file.handle, shorter, open).status());
    Lock lock{.owner = 1, .start = 0, .end = 9, .type = LockType::kWrite, .pid = 1};
    Expect(fs.SetLock(open, lock));
    Expect(fs.Mkdir(here, "gone").status());
    Expect(fs.Rmdir(here, "gone"));
    Expect(fs.Release(log->open));
    Expect(fs.Release(open));
    bytes.resize(5'000);
    CheckOnDisk(server_.root() / name, bytes);
  }
  static void Expect(const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); }
  static void ExpectBytes(const Result<std::vector<std::byte>>& got,
                          const std::vector<std::byte>& due) {
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_TRUE(*got == due);
  }
  static std::string Content(const files::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static void CheckOnDisk(const files::path& here, const std::vector<std::byte>& bytes) {
    std::vector<std::string> names;
    for (const auto& entry : files::directory_iterator(here))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (std::vector<std::string>{"log", "renamed", "symlink"}));
    EXPECT_TRUE(Content(here / "renamed") == AsText(bytes));
    EXPECT_EQ(Content(here / "log"), "one two");
    EXPECT_EQ(files::hard_link_count(here / "renamed"), 1U);
  }

  Rdfsd server_;
  int rows_ = 0;
};

TEST_P(Steps, TheConnectionBreaksAtEachOfThem) {
  constexpr std::uint64_t kMostSteps = 300;
  std::uint64_t step = 1;
  for (; step < kMostSteps; ++step) {
    const std::uint64_t made = RowUnder([step](std::uint64_t connection) {
      return fault::Plan{.drop_after_operations = connection == 0 ? step : 0};
    });
    ASSERT_FALSE(HasFailure()) << "broken at step " << step;
    if (made == 1) break;  // there was no such step
  }
  EXPECT_GT(step, 20U) << "the row has so many requests at least";
  EXPECT_LT(step, kMostSteps);
}

TEST_P(Steps, WhateverIsLateRefusedOrLost) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RowUnder([seed](std::uint64_t connection) {
      return fault::Plan{.seed = seed * 1000 + connection,
                         .drop_connection = connection < 20 ? 800U : 0U,
                         .delay_completion = 3000,
                         .busy = 2000};
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Steps, testing::ValuesIn(transport::TestKinds()),
                         transport::KindName);

}  // namespace
}  // namespace rdfs::fs::client
