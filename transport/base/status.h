// Status and Result: how every function of rdfs says that something went wrong.
//
// A Status is a code, the errno that a caller of a system call would have seen, and one sentence
// for a person. Codes are grouped by what must be torn down: nothing but this request, this
// connection, or this process. Values; any thread. A default-constructed Status is success and
// allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rdfs {

enum class Code : std::uint8_t {
  kOk = 0,
  // This request failed; the connection goes on.
  kErrno = 1,             // a system call failed; errno_value() says how
  kInvalidArgument = 2,   // the caller asked for something that can never work
  kNotFound = 3,          // no such export, device, host
  kBusy = 4,              // a bound was reached; the same call works later
  kDeadlineExceeded = 5,  // the deadline passed before the answer came
  kUnsupported = 6,       // this peer, kernel or device cannot do it
  // This connection is over; another one may work.
  kDisconnected = 16,          // the peer went away
  kProtocolError = 17,         // the peer sent something that no correct peer sends
  kVersionMismatch = 18,       // the peers speak no common version
  kAuthenticationFailed = 19,  // wrong key, or none where one is needed
  // This process lacks something; every connection would fail alike.
  kResourceExhausted = 32,  // memlock, descriptors, memory
  kUnavailable = 33,        // no device, no kernel support: not viable on this machine
  kInternal = 34,           // a bug of ours
};

enum class Scope : std::uint8_t { kNone, kRequest, kConnection, kProcess };

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Status(Code code, int errno_value, std::string message)
      : code_(code), errno_(errno_value), message_(std::move(message)) {}

  static Status Ok() { return {}; }

  // "<what>: <strerror(errno_value)>", code kErrno.
  static Status FromErrno(int errno_value, std::string_view what);

  [[nodiscard]] bool ok() const { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const { return code_; }
  // What to answer to a caller who expects an errno; never 0 unless ok(). The one table is in
  // status.cc.
  [[nodiscard]] int errno_value() const;
  [[nodiscard]] const std::string& message() const { return message_; }
  // "code: message", for logs.
  [[nodiscard]] std::string ToString() const;
  [[nodiscard]] Scope scope() const;

  // The same failure seen from one level up: "<context>: <message>".
  [[nodiscard]] Status WithContext(std::string_view context) const;

 private:
  Code code_ = Code::kOk;
  int errno_ = 0;
  std::string message_;
};

std::string_view CodeName(Code code);

// Either a T or the Status that says why there is none. A Result is never an ok() Status.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) status_ = Status(Code::kInternal, "a result without a value");
  }

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const& { return status_; }
  [[nodiscard]] Status&& status() && { return std::move(status_); }

  // Only when ok().
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace rdfs

// Leaves the function with the Status of `expr` unless it is ok.
#define RDFS_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                 \
    if (::rdfs::Status rdfs_status_ = (expr); !rdfs_status_.ok()) return rdfs_status_; \
  } while (false)

#define RDFS_CONCAT_INNER_(a, b) a##b
#define RDFS_CONCAT_(a, b) RDFS_CONCAT_INNER_(a, b)

// RDFS_ASSIGN_OR_RETURN(auto fd, Open(path)): declares fd, or leaves the function with the Status.
#define RDFS_ASSIGN_OR_RETURN(declaration, expr)                     \
  auto RDFS_CONCAT_(rdfs_result_, __LINE__) = (expr);                \
  if (!RDFS_CONCAT_(rdfs_result_, __LINE__).ok())                    \
    return std::move(RDFS_CONCAT_(rdfs_result_, __LINE__)).status(); \
  declaration = *std::move(RDFS_CONCAT_(rdfs_result_, __LINE__))
