#include "tools/rdinfo/export.h"

#include <fmt/format.h>
#include <unistd.h>

#include "fs/client/sync_client.h"

namespace rdfs::rdinfo {
namespace {

// A file of one block and what names it still fit.
constexpr std::uint64_t kFullBytes = 64 << 10;

Result<std::unique_ptr<fs::client::Mount>> Attach(const PeerOptions& options) {
  fs::client::MountOptions mount;
  mount.dial = [options](std::vector<std::byte> request, std::shared_ptr<transport::Domain> domain,
                         Deadline deadline) {
    transport::DialOptions dial;
    dial.host = options.host;
    dial.port = options.port;
    dial.key = options.key;
    dial.service = fs::kServiceName;
    dial.request = std::move(request);
    dial.deadline = deadline;
    return transport::Session::Dial(std::move(dial), std::move(domain));
  };
  mount.export_name = options.export_name;
  mount.host_name = "rdinfo";
  mount.uid = geteuid();
  mount.gid = getegid();
  mount.timeout = options.timeout;
  return fs::client::Mount::Create(std::move(mount), DeadlineAfter(options.timeout));
}

Fact Space(const fs::client::StatFs& space) {
  const auto gib = [&space](std::uint64_t blocks) {
    return static_cast<double>(blocks) * space.fragment_size / (1 << 30);
  };
  const std::string value =
      fmt::format("{:.2f} of {:.2f} GiB free", gib(space.blocks_available), gib(space.blocks));
  if (space.blocks_available * space.fragment_size >= kFullBytes) {
    return {"space", value, true, ""};
  }
  return {"space", value + ": the disk is full", false,
          "on the server: delete something, or make the file system larger (df -h; root may have "
          "space left that others have not)",
          Weight::kHinders};
}

Fact Inodes(const fs::client::StatFs& space) {
  if (space.files == 0) return {"files", "as many as there is space for", true, ""};
  const std::string value = fmt::format("{} more of {}", space.files_free, space.files);
  if (space.files_free > 0) return {"files", value, true, ""};
  return {"files", value + ": no inode is left", false,
          "on the server: delete files, or make the file system with more inodes (df -i)",
          Weight::kHinders};
}

}  // namespace

Section DescribeExport(const PeerOptions& options) {
  Section section{"export " + options.export_name, {}};
  const auto mount = Attach(options);
  if (!mount.ok()) {
    section.facts.push_back({"attach", "refused", false, mount.status().message()});
    return section;
  }
  auto lane = (*mount)->OpenLane(DeadlineAfter(options.timeout));
  if (!lane.ok()) {
    section.facts.push_back({"attach", "no lane", false, lane.status().message()});
    return section;
  }
  const bool read_only = ((*mount)->info().flags & fs::kGrantReadOnly) != 0;
  section.facts.push_back({"attach",
                           fmt::format("there, {}, over {}", read_only ? "read-only" : "writable",
                                       (*mount)->info().transport),
                           true, ""});
  fs::client::SyncClient client(*std::move(lane), {.uid = geteuid(), .gid = getegid()});
  const auto space = client.StatFs((*mount)->info().root.handle);
  if (!space.ok()) {
    section.facts.push_back({"space", "cannot be asked for: " + space.status().message(), false,
                             "look at rdfsd's log on the server"});
    return section;
  }
  section.facts.push_back(Space(*space));
  section.facts.push_back(Inodes(*space));
  return section;
}

}  // namespace rdfs::rdinfo
