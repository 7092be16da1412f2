#include "fs/fuse/dialer.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "fs/fuse/bootstrap_ssh.h"
#include "transport/session/key.h"

namespace rdfs::fs::fuse {
namespace {

using transport::DialOptions;
using transport::Session;

// How long a person may take over a password, or over whether a host's key is right.
constexpr std::chrono::minutes kTimeToAnswer{3};

DialOptions CommonOptions(const Options& options) {
  DialOptions dial;
  dial.require = options.require;
  dial.plaintext = options.plaintext;
  dial.require_encryption = options.require_encryption;
  // Who insists on both means the wire format, not only what leaves this host.
  dial.encrypt_always = options.require_encryption && options.require == transport::Kind::kTcp;
  dial.service = kServiceName;
  return dial;
}

// Mount calls it by one thread at a time.
class SshDialer {
 public:
  SshDialer(Options options, SshLaunch launch, std::string host, Bootstrapped first)
      : options_(std::move(options)),
        launch_(std::move(launch)),
        host_(std::move(host)),
        first_(std::move(first)) {}

  Result<std::unique_ptr<Session>> Dial(std::vector<std::byte> request,
                                        std::shared_ptr<transport::Domain> domain,
                                        Deadline deadline) {
    std::optional<Bootstrapped> server = std::exchange(first_, std::nullopt);
    if (!server) {
      RDFS_ASSIGN_OR_RETURN(Bootstrapped again, LaunchOverSsh(launch_, deadline));
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
  const SshLaunch launch_;
  const std::string host_;
  std::optional<Bootstrapped> first_;
};

Result<Dialer> OverSsh(const Options& options, const SshSource& source) {
  SshLaunch launch{.ssh_command = options.ssh_command,
                   .destination = source.destination,
                   .directory = source.directory,
                   .rdfsd_path = options.rdfsd_path,
                   .ask = true};
  std::string host = ResolveSshHost(launch, DeadlineAfter(std::chrono::seconds(5)));
  const auto patience = std::max<std::chrono::nanoseconds>(options.deadline, kTimeToAnswer);
  RDFS_ASSIGN_OR_RETURN(Bootstrapped first, LaunchOverSsh(launch, DeadlineAfter(patience)));
  launch.ask = false;
  auto dialer =
      std::make_shared<SshDialer>(options, std::move(launch), std::move(host), std::move(first));
  return Dialer{.dial =
                    [dialer](std::vector<std::byte> request,
                             std::shared_ptr<transport::Domain> domain, Deadline deadline) {
                      return dialer->Dial(std::move(request), std::move(domain), deadline);
                    },
                .export_name = std::string(kBootstrapExport)};
}

Dialer ToExport(const Options& options, const ExportSource& source, const transport::Key& key) {
  return Dialer{
      .dial =
          [options, source, key](std::vector<std::byte> request,
                                 std::shared_ptr<transport::Domain> domain, Deadline deadline) {
            DialOptions dial = CommonOptions(options);
            dial.host = source.host;
            dial.port = source.port;
            dial.key = key;
            dial.request = std::move(request);
            dial.deadline = deadline;
            return Session::Dial(std::move(dial), std::move(domain));
          },
      .export_name = source.name};
}

}  // namespace

Result<Dialer> MakeDialer(const Options& options, const transport::Key& key) {
  if (const auto* source = std::get_if<SshSource>(&options.source)) {
    return OverSsh(options, *source);
  }
  return ToExport(options, std::get<ExportSource>(options.source), key);
}

Result<transport::Key> ReadKey(const Options& options) {
  if (options.key_file.empty()) return transport::Key();
  Result<transport::Key> key = transport::Key::FromFile(options.key_file);
  if (!key.ok() && key.status().errno_value() == ENOENT) {
    return Status(Code::kNotFound, ENOENT,
                  key.status().message() +
                      "; copy the server's key there (it says where it keeps it), with mode 0600");
  }
  return key;
}

}  // namespace rdfs::fs::fuse
