// How the functions of rdfs.h answer: an rdfs_error, a text, what was made.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "fs/library/rdfs.h"
#include "transport/base/status.h"

namespace rdfs::fs::library {

inline void Tell(rdfs_error* error, const Status& status) {
  if (error == nullptr) return;
  error->number = status.errno_value();
  const std::string text = status.message().empty()
                               ? Status::FromErrno(error->number, "it failed").message()
                               : status.message();
  const std::size_t length = std::min(text.size(), sizeof error->sentence - 1);
  std::memcpy(error->sentence, text.data(), length);
  error->sentence[length] = '\0';
}

inline int Refuse(rdfs_error* error, const Status& status) {
  Tell(error, status);
  return -status.errno_value();
}

// As snprintf(3) does.
inline int Say(const std::string& said, char* text, std::size_t size) {
  if (text == nullptr && size > 0) return -EINVAL;
  if (size > 0) {
    const std::size_t length = std::min(said.size(), size - 1);
    std::memcpy(text, said.data(), length);
    text[length] = '\0';
  }
  return static_cast<int>(said.size());
}

// Hands out what was made.
template <typename Made>
int Give(Result<std::unique_ptr<Made>> made, Made** out, rdfs_error* error) {
  if (!made.ok()) return Refuse(error, made.status());
  *out = made->release();
  return 0;
}

}  // namespace rdfs::fs::library
