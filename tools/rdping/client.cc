#include "tools/rdping/client.h"

#include "tools/rdping/lane_measure.h"
#include "tools/rdping/protocol.h"
#include "tools/rdping/rows.h"
#include "tools/rdping/tcp_peer.h"
#include "transport/session/session.h"

namespace rdfs::rdping {
namespace {

using transport::Access;
using transport::Domain;
using transport::Kind;
using transport::MemoryRegion;
using transport::Session;
using std::chrono_literals::operator""s;

constexpr std::array<std::size_t, 6> kUsualSizes{64, 1024, 4096, 65536, 262144, 1 << 20};

std::vector<std::size_t> SizesUpTo(const ClientOptions& options, std::size_t most) {
  std::vector<std::size_t> sizes = options.sizes;
  if (sizes.empty()) sizes.assign(kUsualSizes.begin(), kUsualSizes.end());
  std::erase_if(sizes, [most](std::size_t size) { return size == 0 || size > most; });
  return sizes;
}

Status MeasureTcp(const ClientOptions& options, const GrantWords& words, Report& report) {
  const TcpServer server{options.host, words.tcp_port, words.pass};
  return AddRow(
      report, "kernel tcp", "message", SizesUpTo(options, kRegionBytes),
      [&] { return MeasureTcpLatency(server, options.latency_bytes, options.duration); },
      [&](std::size_t size) { return MeasureTcpBandwidth(server, size, options.duration); });
}

Status MeasureLane(const ClientOptions& options, transport::Connection& lane,
                   const MemoryRegion& local, Report& report) {
  if (SpinningMeasures()) lane.SpinAtMost(kSpin);
  LaneMeasure measure(lane, local);
  RDFS_RETURN_IF_ERROR(measure.FetchRegions());
  std::string name(transport::Name(lane.capabilities().kind));
  if (lane.capabilities().encrypted) name += " (TLS)";
  const auto duration = options.duration;
  const std::size_t small = options.latency_bytes;
  const auto add = [&](std::string_view operation, std::size_t most, auto latency,
                       auto bandwidth) -> Status {
    return AddRow(
        report, name, operation, SizesUpTo(options, most),
        [&] { return (measure.*latency)(small, duration); },
        [&](std::size_t size) { return (measure.*bandwidth)(size, duration); });
  };
  RDFS_RETURN_IF_ERROR(add("message", transport::kMaxMessageBytes, &LaneMeasure::MessageLatency,
                           &LaneMeasure::MessageBandwidth));
  constexpr std::string_view kUnpinned = "the server could not pin memory; see its log";
  if (measure.can_read()) {
    RDFS_RETURN_IF_ERROR(
        add("READ", kRegionBytes, &LaneMeasure::ReadLatency, &LaneMeasure::ReadBandwidth));
  } else {
    report.skipped.push_back({name + " READ", std::string(kUnpinned)});
  }
  if (!measure.can_write()) {
    report.skipped.push_back({name + " WRITE", std::string(kUnpinned)});
    return {};
  }
  return add("WRITE", kRegionBytes, &LaneMeasure::WriteLatency, &LaneMeasure::WriteBandwidth);
}

}  // namespace

Result<Report> Measure(const ClientOptions& options) {
  const auto domain = Domain::Create("rdping");
  RDFS_ASSIGN_OR_RETURN(
      auto memory, SharedMemory::Create("rdping", kRegionBytes, SharedMemory::Peers::kMayWrite));
  RDFS_ASSIGN_OR_RETURN(const auto local, domain->Register(std::move(memory), Access::kLocal));
  transport::DialOptions dial;
  dial.host = options.host;
  dial.port = options.port;
  dial.key = options.key;
  dial.plaintext = options.plaintext;
  dial.service = kServiceName;
  dial.deadline = DeadlineAfter(10s);
  RDFS_ASSIGN_OR_RETURN(const auto session, Session::Dial(std::move(dial), domain));
  ByteReader grant(session->grant());
  const auto words = grant.Read<GrantWords>();
  if (!grant.ok()) return Status(Code::kProtocolError, "this is not an rdping server");

  Report report;
  report.peer = options.host + ":" + std::to_string(options.port);
  report.latency_bytes = options.latency_bytes;
  if (const Status tcp = MeasureTcp(options, words, report); !tcp.ok()) {
    report.skipped.push_back({"kernel tcp", tcp.message()});
  }
  for (const Kind kind : {Kind::kShm, Kind::kVerbs, Kind::kTcp}) {
    if (options.only && *options.only != kind) continue;
    const std::size_t rows = report.rows.size();
    auto lane = session->OpenLaneOver(kind, DeadlineAfter(10s));
    const Status status = lane.ok() ? MeasureLane(options, **lane, *local, report) : lane.status();
    if (status.ok()) continue;
    if (options.only) {
      report.failed = status.WithContext(transport::Name(kind));
      if (report.rows.size() == rows) return report.failed;
      continue;
    }
    report.skipped.push_back({std::string(transport::Name(kind)), status.message()});
  }
  return report;
}

}  // namespace rdfs::rdping
