// CapturePrior: the state of the files that a mutating request is about, before it is carried out.
// The request's intent records it, so that after a crash it can be told whether it was carried out.
//
// Decodes the request's body a second time, on its own copy of the reader; makes at most two or
// three system calls, and none for requests that may simply be repeated. See intent_record.h. A
// body that does not decode gives an empty state: the handler refuses it.
#pragma once

#include <optional>

#include "server/ops/call.h"
#include "server/record/intent_record.h"

namespace rdfs::server {

PriorState CapturePrior(const Call& call);

// For an intent that a crash left open: what it was, from the request that was sent again.
InterruptedIntent DescribeIntent(const Call& call, const PriorState& before);
// Whether an append or an xattr that seems to have happened has the request's content; nothing for
// other requests.
std::optional<bool> ContentMatches(const Call& call, const PriorState& before);
// It did happen: the answer that it would have had.
Outcome AnswerAsDone(Call& call, const PriorState& before);

}  // namespace rdfs::server
