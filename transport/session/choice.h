// Which transports a session tries, in which order, and how it tells the user what came of it.
//
// Pure: what both ends have comes in, legs and sentences go out. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transport/session/messages.h"
#include "transport/session/session.h"
#include "transport/transport.h"

namespace rdfs::transport::session {

struct ChoiceInput {
  std::vector<Offer> offers;  // the server's
  bool same_host = false;
  Viability shm, verbs;      // of this machine
  bool has_stream = false;   // the vestibule is a stream that was given to Dial
  bool stream_lane = false;  // both ends can turn the vestibule into a lane
  std::optional<Kind> require;
  bool require_encryption = false;
};

// The legs, best first. A leg with an ok status is to be tried; the others say why not.
std::vector<LegReport> PlanLegs(const ChoiceInput& input);

// How lanes of tcp are protected, for the user.
enum class Protection { kTls, kSameHost, kPlaintext };

// "tcp with TLS; not verbs: no RDMA device ...; not shm: the server is on another host".
// `chosen` is the index of the leg in use, none before the first lane. `detail` is the device of a
// verbs lane, or empty.
std::string Explain(const std::vector<LegReport>& legs, std::optional<std::size_t> chosen,
                    Protection protection, const std::string& detail);

// When no leg is left: one sentence with every reason.
Status NothingWorks(const std::vector<LegReport>& legs, std::optional<Kind> require);

}  // namespace rdfs::transport::session
