#include "fs/fuse/command/dialer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "fs/protocol.h"
#include "transport/base/host_name.h"
#include "transport/session/key.h"
#include "transport/ssh/launch.h"

namespace rdfs::fs::fuse {
namespace {

using transport::DialOptions;
using transport::Session;
namespace ssh = transport::ssh;

constexpr ssh::Program kRdfsd{.name = "rdfsd",
                              .arguments = "--stdio",
                              .magic = kBootstrapMagic,
                              .path_option = "-o rdfsd_path=PATH",
                              .ssh_option = "-o ssh_command=CMD",
                              .deadline_option = "-o deadline"};

DialOptions CommonOptions(const Options& options) {
  DialOptions dial;
  dial.other_hosts = options.other_addresses;
  dial.require = options.require;
  dial.plaintext = options.plaintext;
  dial.require_encryption = options.require_encryption;
  // require=tcp with require_encryption asks for TLS even on one host.
  dial.encrypt_always = options.require_encryption && options.require == transport::Kind::kTcp;
  dial.service = kServiceName;
  return dial;
}

// Mount calls it by one thread at a time.
class SshDialer {
 public:
  SshDialer(Options options, ssh::Launch launch, std::string host, ssh::Started first)
      : options_(std::move(options)),
        launch_(std::move(launch)),
        host_(std::move(host)),
        first_(std::move(first)) {}

  Result<std::unique_ptr<Session>> Dial(std::vector<std::byte> request,
                                        std::shared_ptr<transport::Domain> domain,
                                        Deadline deadline) {
    std::optional<ssh::Started> server = std::exchange(first_, std::nullopt);
    if (!server) {
      RDFS_ASSIGN_OR_RETURN(ssh::Started again, ssh::Start(launch_, deadline));
      server = std::move(again);
    }
    DialOptions dial = CommonOptions(options_);
    dial.host = host_;
    dial.stream = std::move(server->stream);
    dial.key = std::move(server->key);
    dial.request = std::move(request);
    dial.deadline = deadline;
    return Session::Dial(std::move(dial), std::move(domain));
  }

 private:
  const Options options_;
  const ssh::Launch launch_;
  const std::string host_;
  std::optional<ssh::Started> first_;
};

Status ReachOverSsh(const Options& options, const SshSource& source, bool to_background,
                    client::MountOptions& mount) {
  ssh::Launch launch{.program = kRdfsd,
                     .ssh_command = options.ssh_command,
                     .destination = source.destination,
                     .path = options.rdfsd_path,
                     .text = source.directory,
                     .ask = true,
                     .relay_errors = to_background};
  std::string host = ssh::ResolveHost(launch, DeadlineAfter(ssh::kTimeToResolve));
  const auto patience = std::max<std::chrono::nanoseconds>(options.deadline, ssh::kTimeToAnswer);
  RDFS_ASSIGN_OR_RETURN(ssh::Started first, ssh::Start(launch, DeadlineAfter(patience)));
  launch.ask = false;
  auto dialer =
      std::make_shared<SshDialer>(options, std::move(launch), std::move(host), std::move(first));
  mount.dial = [dialer](std::vector<std::byte> request, std::shared_ptr<transport::Domain> domain,
                        Deadline deadline) {
    return dialer->Dial(std::move(request), std::move(domain), deadline);
  };
  mount.export_name = kBootstrapExport;
  return {};
}

void ReachExport(const Options& options, const ExportSource& source, const transport::Key& key,
                 client::MountOptions& mount) {
  mount.dial = [options, source, key](std::vector<std::byte> request,
                                      std::shared_ptr<transport::Domain> domain,
                                      Deadline deadline) {
    DialOptions dial = CommonOptions(options);
    dial.host = source.host;
    dial.port = source.port;
    dial.key = key;
    dial.request = std::move(request);
    dial.deadline = deadline;
    return Session::Dial(std::move(dial), std::move(domain));
  };
  mount.export_name = source.name;
}

}  // namespace

Result<client::MountOptions> MakeMountOptions(const Options& options, const transport::Key& key,
                                              bool to_background) {
  client::MountOptions mount;
  if (const auto* source = std::get_if<SshSource>(&options.source)) {
    RDFS_RETURN_IF_ERROR(ReachOverSsh(options, *source, to_background, mount));
  } else {
    ReachExport(options, std::get<ExportSource>(options.source), key, mount);
  }
  mount.host_name = HostName();
  mount.uid = options.uid.value_or(geteuid());
  mount.gid = options.gid.value_or(getegid());
  mount.flags = (options.read_only ? kMountReadOnly : 0U) | (options.raw_ids ? kMountRawIds : 0U);
  mount.timeout = options.deadline;
  return mount;
}

Result<transport::Key> ReadKey(const Options& options) {
  if (options.key_file.empty()) return transport::Key();
  return transport::Key::FromFile(options.key_file);
}

}  // namespace rdfs::fs::fuse
