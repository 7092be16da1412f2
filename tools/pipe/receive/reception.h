// Reception: one stream from the first sender that comes into a sink, and on to others. What rdrecv
// does, and librdfs for its program.
//
// A thread of its own accepts from Create on. Run blocks on the caller's thread; one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tools/pipe/command/options.h"
#include "tools/pipe/command/progress.h"
#include "tools/pipe/receive/door.h"
#include "tools/pipe/receive/receiver.h"
#include "transport/session/acceptor.h"

namespace rdfs::pipe {

struct Arrival {
  Status status;            // whether the sink has all of it, and the sender knows
  std::uint64_t begin = 0;  // what was there from an earlier run
  std::string how;          // the transport; empty when no sender has come
  std::string summary;      // as Progress says it
};

class Reception {
 public:
  // Listens from now on. `program`, if any, gets the stream, instead of the file or standard output
  // that the options name.
  static Result<std::unique_ptr<Reception>> Create(ReceiveOptions options,
                                                   std::shared_ptr<Handover> program = nullptr);
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;
  ~Reception();

  [[nodiscard]] std::uint16_t port() const { return acceptor_->port(); }
  // Once. `interrupts`: as CheckInterrupt, or -1. `came`, if any, is told how, when a sender has.
  Arrival Run(int interrupts, bool shows_progress,
              const std::function<void(const std::string& how)>& came = {});

 private:
  Reception(ReceiveOptions options, SinkOptions sink, std::unique_ptr<Door> door,
            std::unique_ptr<transport::Acceptor> acceptor);
  Result<ReceiverSettings> SettingsFor(const Guest& guest, int interrupts, bool has_part) const;
  // One sender's stream. Something, when another one may go on with it.
  std::optional<Receiver::Left> Take(Guest guest, std::unique_ptr<Sink> part, int interrupts,
                                     bool shows_progress, Arrival& out);

  const ReceiveOptions options_;
  const SinkOptions sink_;
  const std::unique_ptr<Door> door_;
  const std::unique_ptr<transport::Acceptor> acceptor_;
  std::thread accepting_;
};

}  // namespace rdfs::pipe
