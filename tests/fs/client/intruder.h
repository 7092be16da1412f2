// Intruder: a mount that is spoken for by hand. It holds the key, and follows the rules as far as
// whoever uses it wants. One thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "fs/client/client.h"
#include "fs/protocol.h"
#include "transport/session/session.h"

namespace rdfs::fs::client {

using Bytes = std::vector<std::byte>;

template <WireStruct T>
void Put(Bytes& out, const T& value) {
  const std::size_t at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}
void PutSized16(Bytes& out, ByteSpan bytes);
Bytes LookupBody(const Handle& parent, std::string_view name);

class Intruder {
 public:
  // Mounts; `refused` counts that it may not.
  Intruder(const DialFunction& dial, std::string_view export_name,
           std::uint16_t* refused = nullptr);

  [[nodiscard]] bool ok() const { return session_ != nullptr; }
  [[nodiscard]] const Handle& root() const { return root_; }
  [[nodiscard]] const std::shared_ptr<transport::Domain>& domain() const { return domain_; }

  // A lane, or null when there is none to be had, and why.
  std::unique_ptr<transport::Connection> OpenLane();
  [[nodiscard]] const Status& why() const { return why_; }
  // The header that comes next, for who wants to spoil it.
  RequestHeader Header(Opcode opcode, std::size_t body_bytes);
  static Status Send(transport::Connection& lane, const RequestHeader& header, const Bytes& body);
  Status Send(transport::Connection& lane, Opcode opcode, const Bytes& body);
  // The answer to one request, header and body, unless the lane ends. What the server says unasked
  // is handed to `unasked`, if there is one.
  std::optional<Bytes> Ask(transport::Connection& lane, Opcode opcode, const Bytes& body,
                           const std::function<void(ByteSpan)>& unasked = nullptr);

 private:
  const std::shared_ptr<transport::Domain> domain_ = transport::Domain::Create("intruder");
  std::unique_ptr<transport::Session> session_;
  MountGrant grant_{};
  Handle root_;
  std::uint64_t sequence_ = 0;
  Status why_;
};

}  // namespace rdfs::fs::client
