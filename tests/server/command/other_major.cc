// Usage: other_major client|server DIRECTORY
// A server whose file protocol differs from its clients' in the major version, for tests of what
// people are told: DIRECTORY as export "e" on a free port of loopback, until it is killed.
//
// It is the real service and the real acceptor; only one number is changed on its way between them.
// `client`: that of each request, as of clients of another version, whom the service refuses.
// `server`: that of each grant, as of a server that admits whom it does not understand.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "fs/protocol.h"
#include "tests/server/wrapped_service.h"

namespace rdfs::server {
namespace {

constexpr std::uint16_t kOtherMajor = fs::kProtocolMajor + 1;

enum class Whose { kClient, kServer };

// What begins with the version, with another one.
template <WireStruct T>
std::vector<std::byte> WithOtherMajor(ByteSpan bytes) {
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  T words = ByteReader(out).Read<T>();
  words.major = kOtherMajor;
  std::memcpy(out.data(), &words, std::min(out.size(), sizeof words));
  return out;
}

class OtherMajor final : public WrappedService {
 public:
  OtherMajor(Service& service, Whose whose) : WrappedService(service), whose_(whose) {}

  Result<transport::Admission> Admit(const transport::SessionRequest& asked) override {
    transport::SessionRequest request = asked;
    std::vector<std::byte> changed;
    if (whose_ == Whose::kClient) {
      changed = WithOtherMajor<fs::MountRequest>(asked.request);
      request.request = changed;
    }
    RDFS_ASSIGN_OR_RETURN(transport::Admission admission, WrappedService::Admit(request));
    if (whose_ == Whose::kServer) {
      admission.grant = WithOtherMajor<fs::MountGrant>(admission.grant);
    }
    return admission;
  }

 private:
  const Whose whose_;
};

}  // namespace
}  // namespace rdfs::server

int main(int argc, char** argv) {
  using rdfs::server::Whose;
  const std::string_view whose = argc == 3 ? argv[1] : "";
  if (whose != "client" && whose != "server") return 2;
  const rdfs::Status status = rdfs::server::ServeWrapped<rdfs::server::OtherMajor>(
      "127.0.0.1", argv[2], whose == "client" ? Whose::kClient : Whose::kServer);
  if (!status.ok()) fmt::print(stderr, "other_major: {}\n", status.message());
  return 1;
}
