#include "fs/fuse/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "fs/fuse/worker/worker.h"

namespace rdfs::fs::fuse {
namespace {

constexpr std::string_view kRoundTrips = "round_trips";  // of each operation

void AddFigures(const client::Counters& counters, Snapshot& out) {
  out.Count("read_bytes", "Bytes read from the server's memory, one-sided.", counters.read_bytes);
  out.Count("written_bytes", "Bytes written into the server's memory, one-sided.",
            counters.written_bytes);
  out.Count("inline_read_bytes", "Bytes read that came inside answers.",
            counters.inline_read_bytes);
  out.Count("inline_written_bytes", "Bytes written that went inside requests.",
            counters.inline_written_bytes);
  out.Count("grant_hits", "Reads that needed no message: where the bytes lie was known.",
            counters.grant_hits);
  out.Count("grant_misses", "Reads that had to ask where the bytes lie.", counters.grant_misses);
  out.Count("grants_discarded", "Reads that came too late for their bytes and asked again.",
            counters.grants_discarded);
  out.Count("retries", "Requests sent again after a connection was lost.", counters.retries);
  out.Count("connections_lost", "Connections that broke.", counters.connections_lost);
  out.Count("reconnects", "Connections made again.", counters.reconnects);
  out.Count("fallbacks", "Better transports that were tried in vain.", counters.fallbacks);
  out.Count("timeouts", "Calls that had no answer in time.", counters.timeouts);
  for (std::size_t i = 0; i < counters.round_trips.size(); ++i) {
    if (counters.round_trips[i] == 0) continue;
    out.Count(std::string(kRoundTrips), "Requests that were answered.", counters.round_trips[i],
              std::string(OpcodeName(static_cast<Opcode>(i))));
  }
  for (std::size_t i = 0; i < counters.took.size(); ++i) {
    out.Latency(std::string(OpcodeName(static_cast<Opcode>(i))), counters.took[i]);
  }
}

void AddHits(const Filesystem& filesystem, Snapshot& out) {
  const AtHand& opens = filesystem.opens_at_hand;
  out.Count("open_hits", "Opens of files that needed no message: they were still open.",
            opens.hits);
  out.Count("open_misses", "Opens of files that the server was asked for.", opens.misses);
  const AtHand& listings = filesystem.listings_at_hand;
  out.Count("listing_hits", "Listings of directories that began without a message.", listings.hits);
  out.Count("listing_misses", "Listings of directories that the server was asked for.",
            listings.misses);
  const AtHand& attributes = filesystem.attributes_at_hand;
  out.Count("attribute_hits", "Attributes that the kernel asked for and the mount knew.",
            attributes.hits);
  out.Count("attribute_misses", "Attributes that the server had to be asked for.",
            attributes.misses);
}

// Registered memory of the lanes, which requests are read into and answers come to.
void AddBuffers(const Workers& workers, Snapshot& out) {
  std::size_t all = 0, free = 0;
  for (Worker* const worker : workers) {
    const client::BufferPool& buffers = worker->lane().buffers();
    all += buffers.size_bytes();
    free += buffers.free_bytes();
  }
  out.Gauge("buffer_bytes", "Registered memory for requests and what they read and write.", all);
  out.Gauge("buffer_used_bytes", "Of it, what is in use.", all - std::min(all, free));
}

}  // namespace

Snapshot DescribeMount(const std::string& mount_point, const std::string& source,
                       const Filesystem& filesystem, const Workers& workers) {
  Snapshot out;
  const client::Mount& mount = filesystem.mount;
  const client::MountInfo info = mount.info();
  const Status health = mount.health();
  out.words = {{"mount", mount_point},
               {"source", source},
               {"transport", info.transport},
               {"server", health.ok() ? "connected" : "away: " + health.message()}};
  out.info = {{"transport", info.kind ? std::string(transport::Name(*info.kind)) : "none"},
              {"version", RDFS_VERSION}};
  out.Gauge("connected", "Whether the server is there: 1, or 0 while it is away.",
            health.ok() ? 1 : 0);
  AddFigures(mount.counters(), out);
  AddHits(filesystem, out);
  out.Count("recalls", "Times that a client was told to believe something no more.",
            filesystem.kernel.recalls());
  out.Count("early_writes", "Writes that programs were told are done while they were on their way.",
            filesystem.behind.total());
  out.Gauge("inodes", "Files and directories that the kernel knows.", filesystem.inodes.size());
  out.Count("reads_together", "Reads whose answers went to the kernel with those of others.",
            filesystem.reads_together);
  const ReadAheadCounters& ahead = filesystem.read_ahead;
  out.Count("reads_ahead", "Reads that were answered from what was asked for ahead of them.",
            ahead.served);
  out.Count("ahead_bytes", "What was asked for ahead of the kernel.", ahead.bytes);
  out.Count("ahead_unused_bytes", "Of it, what came and was not wanted.", ahead.unused);
  AddBuffers(workers, out);
  out.Gauge("workers", "Event loops that serve the mount.", workers.size());
  out.Gauge("open_files", "Files that are open; at the server also directories.",
            filesystem.opens.size());
  return out;
}

Rates::Totals TotalsOf(const client::Counters& counters) {
  return {.read_bytes = counters.read_bytes + counters.inline_read_bytes,
          .written_bytes = counters.written_bytes + counters.inline_written_bytes,
          .requests = std::accumulate(counters.round_trips.begin(), counters.round_trips.end(),
                                      std::uint64_t{0})};
}

std::string DescribeCounters(const Snapshot& snapshot) {
  std::string figures, trips;
  for (const Figure& figure : snapshot.figures) {
    if (figure.label.empty()) {
      figures += fmt::format(" {} {}", figure.name, figure.value);
    } else if (figure.name == kRoundTrips) {
      trips += fmt::format(" {} {}", figure.label, figure.value);
    }
  }
  return fmt::format("counters:{}; round trips:{}", figures, trips);
}

}  // namespace rdfs::fs::fuse
