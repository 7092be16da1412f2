#include "transport/base/status.h"

#include <cerrno>
#include <cstring>

namespace rdfs {

Status Status::FromErrno(int errno_value, std::string_view what) {
  std::string message(what);
  message += ": ";
  message +=
      strerrordesc_np(errno_value) != nullptr ? strerrordesc_np(errno_value) : "unknown error";
  return {Code::kErrno, errno_value, std::move(message)};
}

int Status::errno_value() const {
  if (errno_ != 0) return errno_;
  switch (code_) {
    case Code::kOk:
      return 0;
    case Code::kErrno:
      return EIO;
    case Code::kInvalidArgument:
      return EINVAL;
    case Code::kNotFound:
      return ENOENT;
    case Code::kBusy:
      return EAGAIN;
    case Code::kDeadlineExceeded:
      return ETIMEDOUT;
    case Code::kUnsupported:
      return EOPNOTSUPP;
    case Code::kDisconnected:
      return ENOTCONN;
    case Code::kProtocolError:
      return EPROTO;
    case Code::kVersionMismatch:
      return EPROTONOSUPPORT;
    case Code::kAuthenticationFailed:
      return EACCES;
    case Code::kResourceExhausted:
      return ENOMEM;
    case Code::kUnavailable:
      return ENODEV;
    case Code::kInternal:
      return EIO;
  }
  return EIO;
}

Scope Status::scope() const {
  const auto value = static_cast<unsigned>(code_);
  if (value == 0) return Scope::kNone;
  if (value < 16) return Scope::kRequest;
  return value < 32 ? Scope::kConnection : Scope::kProcess;
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(CodeName(code_)) + ": " + message_;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return {code_, errno_, std::string(context) + ": " + message_};
}

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kErrno:
      return "system call failed";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kBusy:
      return "busy";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kDisconnected:
      return "disconnected";
    case Code::kProtocolError:
      return "protocol error";
    case Code::kVersionMismatch:
      return "version mismatch";
    case Code::kAuthenticationFailed:
      return "authentication failed";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

}  // namespace rdfs
