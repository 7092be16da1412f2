#include "transport/session/choice.h"

#include <algorithm>

namespace rdfs::transport::session {
namespace {

Status No(std::string reason) { return {Code::kUnavailable, std::move(reason)}; }

const Offer* OfferOf(const ChoiceInput& input, Kind kind) {
  const auto found =
      std::ranges::find_if(input.offers, [&](const Offer& o) { return o.kind == kind; });
  return found == input.offers.end() ? nullptr : &*found;
}

Status CheckOffer(const ChoiceInput& input, Kind kind) {
  const Offer* offer = OfferOf(input, kind);
  if (offer == nullptr) return No("the server does not offer it");
  return offer->available ? Status::Ok() : No("the server says: " + offer->reason);
}

Status CheckLeg(const ChoiceInput& input, Kind kind) {
  if (kind == Kind::kShm) {
    if (!input.same_host) return No("the server is on another host");
    if (!input.shm.viable) return No(input.shm.reason);
  }
  if (kind == Kind::kVerbs) {
    if (input.require_encryption) {
      return No("RDMA payload is not encrypted on the wire, and encryption is required");
    }
    if (!input.verbs.viable) return No(input.verbs.reason);
  }
  return CheckOffer(input, kind);
}

std::string LegName(const LegReport& leg) {
  if (leg.stdio) return "the session's own stream";
  return std::string(Name(leg.kind));
}

std::string InUse(const LegReport& leg, Protection protection, const std::string& detail) {
  if (leg.stdio) return "tcp over the session's own stream (ssh)";
  if (leg.kind == Kind::kTcp) {
    switch (protection) {
      case Protection::kTls:
        return "tcp with TLS";
      case Protection::kSameHost:
        return "tcp (plaintext, same host)";
      case Protection::kPlaintext:
        return "tcp (plaintext)";
    }
  }
  const std::string name(Name(leg.kind));
  return detail.empty() ? name : name + " (" + detail + ")";
}

// Sentences end without a dot here: they stand in a row.
std::string_view WithoutDot(std::string_view sentence) {
  while (sentence.ends_with('.') || sentence.ends_with(' ')) sentence.remove_suffix(1);
  return sentence;
}

}  // namespace

std::vector<LegReport> PlanLegs(const ChoiceInput& input) {
  std::vector<LegReport> legs;
  for (const Kind kind : {Kind::kShm, Kind::kVerbs, Kind::kTcp}) {
    if (input.require && *input.require != kind) continue;
    legs.push_back({kind, false, CheckLeg(input, kind)});
  }
  const bool tcp_asked = !input.require || *input.require == Kind::kTcp;
  if (tcp_asked && input.has_stream) {
    legs.push_back({Kind::kTcp, true,
                    input.stream_lane ? Status::Ok() : No("the server cannot use it for data")});
  }
  return legs;
}

std::string Explain(const std::vector<LegReport>& legs, std::optional<std::size_t> chosen,
                    Protection protection, const std::string& detail) {
  if (!chosen) return "no transport in use yet";
  std::string out = InUse(legs[*chosen], protection, detail);
  // What the user could have had comes last in the plan's order: nearest miss first.
  for (std::size_t i = *chosen; i-- > 0;) {
    if (legs[i].status.ok()) continue;
    out += "; not " + LegName(legs[i]) + ": ";
    out += WithoutDot(legs[i].status.message());
  }
  return out;
}

Status NothingWorks(const std::vector<LegReport>& legs, std::optional<Kind> require) {
  std::string out = require ? std::string(Name(*require)) + " is required and does not work"
                            : std::string("no transport works");
  Code code = Code::kUnavailable;
  for (const LegReport& leg : legs) {
    if (leg.status.ok()) continue;
    out += require && !leg.stdio ? ": " : "; " + LegName(leg) + ": ";
    out += WithoutDot(leg.status.message());
    // A peer that went away is not a machine that lacks something: another dial may work.
    if (leg.status.scope() == Scope::kConnection) code = leg.status.code();
  }
  return {code, out};
}

}  // namespace rdfs::transport::session
