// What the plain calls share (lane_calls.cc, lane_file_calls.cc): the check of a name, and the
// completions of answers that carry one thing. Pure.
#pragma once

#include <cerrno>
#include <string_view>
#include <utility>

#include "fs/client/call.h"
#include "fs/client/client.h"
#include "fs/client/decode.h"

namespace rdfs::fs::client {

// 0, or the errno of a name that no server is asked for.
inline int CheckName(std::string_view name) {
  if (name.size() > kMaxNameBytes) return ENAMETOOLONG;
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos ||
      name.find('\0') != name.npos) {
    return EINVAL;
  }
  return 0;
}

// `decode(Answer&)` makes the T; the answer must be no longer and no shorter.
template <typename T, typename Decode>
Completion Decoded(Callback<T> done, Decode decode) {
  return [done = std::move(done), decode](Answer& answer) mutable {
    if (!answer.status.ok()) {
      done(std::move(answer.status));
      return true;
    }
    T value = decode(answer);
    if (!answer.body.ok() || answer.body.remaining() > 0) {
      done(Status(Code::kProtocolError, EIO, {}));
      return false;
    }
    done(std::move(value));
    return true;
  };
}

inline Completion Nothing(DoneCallback done) {
  return [done = std::move(done)](Answer& answer) mutable {
    const bool well_formed = !answer.status.ok() || answer.body.remaining() == 0;
    done(well_formed ? std::move(answer.status) : Status(Code::kProtocolError, EIO, {}));
    return well_formed;
  };
}

inline Completion File(Callback<NamedFile> done) {
  return Decoded<NamedFile>(
      std::move(done), [](Answer& answer) { return DecodeNamedFile(answer.body, answer.asked); });
}

inline Completion AttributesOnly(Callback<Attributes> done) {
  return Decoded<Attributes>(
      std::move(done), [](Answer& answer) { return DecodeAttributes(answer.body, answer.asked); });
}

}  // namespace rdfs::fs::client
