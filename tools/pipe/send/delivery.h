// Delivery: one stream from a source to the first of its receivers that answers, which passes it on
// to those behind it. What rdsend does, rdrecv when it relays, and librdfs for its program. When
// that one is lost, the first of those behind it gets the stream from here, as far as the source is
// in a file.
//
// Blocks on the caller's thread until the receivers have it or it is known why not.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/pipe/command/options.h"
#include "tools/pipe/command/progress.h"
#include "tools/pipe/io/source.h"
#include "tools/pipe/wire/protocol.h"

namespace rdfs::pipe {

struct Delivery {
  Status status;                  // of the stream: whether the first receiver has taken all of it
  std::vector<FailedHop> failed;  // who has not got it whole, with several receivers
  std::uint64_t bytes = 0;        // that were sent,
  std::uint64_t begin = 0;        // from here on
  std::string how;                // transport, and why
};

// `source`, where it could not be opened: the receiver is told, if there is one. `stop`: is also
// the source's; set, it ends the waiting for a receiver. `interrupts`: as CheckInterrupt, or -1.
// `reached`, if any, is told how, as soon as there is a receiver for the source.
Delivery Deliver(const SendOptions& options, Result<std::unique_ptr<Source>> source, StopFlag& stop,
                 int interrupts, Progress& progress,
                 const std::function<void(const std::string& how)>& reached = {});

// The key that a receiver which relays proves to the next one, and its name: made from the key of
// both, so that neither can be taken for the other's.
inline constexpr std::string_view kRelayKeyName = "relay";
transport::Key RelayKey(const transport::Key& key);

}  // namespace rdfs::pipe
