// Reassembler: makes messages of the frames that arrive. Pure: no I/O; one thread.
//
// A message of one frame is passed through in place. One of several is gathered in a buffer that is
// allocated when the first such message begins and kept, at most kMaxMessageBytes.
#pragma once

#include <optional>
#include <vector>

#include "transport/base/status.h"
#include "transport/verbs/frame.h"

namespace rdfs::transport::verbs {

class Reassembler {
 public:
  // A whole message: in the frame itself, or in the Reassembler's buffer until the next Add.
  struct Message {
    ByteSpan bytes;
    bool in_frame = false;
  };

  // Takes a kMessage or kContinuation, `payload` being what follows its header. Null when the
  // message goes on. kProtocolError for a frame that no correct peer sends.
  Result<std::optional<Message>> Add(const FrameHeader& header, ByteSpan payload);

 private:
  std::vector<std::byte> buffer_;
  std::size_t total_ = 0;     // of the message being gathered
  std::size_t gathered_ = 0;  // below total_ while one is
};

}  // namespace rdfs::transport::verbs
