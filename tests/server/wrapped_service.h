// WrappedService: a SessionHost that passes everything on to a real service, for programs that
// serve as rdfsd does and change something on its way. ServeWrapped runs one, and its acceptor.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "server/service.h"
#include "transport/base/sigpipe.h"
#include "transport/session/acceptor.h"

namespace rdfs::server {

class WrappedService : public transport::SessionHost {
 public:
  explicit WrappedService(Service& service) : service_(service) {}
  Result<transport::Admission> Admit(const transport::SessionRequest& request) override {
    return service_.Admit(request);
  }
  void OnLane(std::uint64_t session_id, const std::shared_ptr<void>& context,
              std::unique_ptr<transport::Connection> lane) override {
    service_.OnLane(session_id, context, std::move(lane));
  }
  void OnSessionEnd(std::uint64_t session_id, const std::shared_ptr<void>& context) override {
    service_.OnSessionEnd(session_id, context);
  }

 private:
  Service& service_;
};

// Serves `directory` as export "e", without a key, on a free port of `address`, which it prints;
// blocks until the process is killed. `Host`: a WrappedService, made of the service and `more`.
template <typename Host, typename More>
Status ServeWrapped(const char* address, const char* directory, More more) {
  IgnoreSigpipe();
  ServiceOptions options;
  ExportSpec spec;
  spec.name = "e";
  spec.directory = directory;
  spec.id_mode = IdMode::kAsMe;
  spec.id_mode_given = true;
  options.exports.push_back(spec);
  options.secret = HandleSecret::Random();
  options.pool_bytes = 32 << 20;
  const auto keeper = DescriptorKeeper::None();
  RDFS_ASSIGN_OR_RETURN(const auto service, Service::Create(std::move(options), *keeper));
  Host host(*service, more);
  transport::AcceptorOptions accept;
  accept.addresses = {address};
  accept.port = 0;
  accept.no_auth = true;
  RDFS_ASSIGN_OR_RETURN(const auto acceptor, transport::Acceptor::Create(std::move(accept), host));
  fmt::print("ready on port {}\n", acceptor->port());
  std::fflush(stdout);
  return acceptor->Run();
}

}  // namespace rdfs::server
