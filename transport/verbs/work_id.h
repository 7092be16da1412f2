// WorkId: what a work request carries through the device and a completion brings back (wr_id).
//
// The kind has to travel in it: of a failed completion every other field but the status is
// undefined (ibv_poll_cq(3)). A value.
#pragma once

#include <cstdint>

namespace rdfs::transport::verbs {

enum class WorkKind : std::uint8_t {
  kReceive = 1,  // value: the receive slot
  kSend = 2,     // value: the sequence number of the frame
  kRead = 3,     // value: the ticket
  kWrite = 4,    // value: the ticket
};

class WorkId {
 public:
  // Values of 56 bits: at 100 million operations a second they last for 22 years.
  constexpr WorkId(WorkKind kind, std::uint64_t value)
      : raw_((std::uint64_t{static_cast<std::uint8_t>(kind)} << kValueBits) | value) {}
  static constexpr WorkId FromRaw(std::uint64_t raw) { return WorkId(raw); }

  [[nodiscard]] constexpr std::uint64_t raw() const { return raw_; }
  [[nodiscard]] constexpr WorkKind kind() const {
    return WorkKind{static_cast<std::uint8_t>(raw_ >> kValueBits)};
  }
  [[nodiscard]] constexpr std::uint64_t value() const { return raw_ & kValueMask; }

 private:
  static constexpr unsigned kValueBits = 56;
  static constexpr std::uint64_t kValueMask = (std::uint64_t{1} << kValueBits) - 1;

  explicit constexpr WorkId(std::uint64_t raw) : raw_(raw) {}

  std::uint64_t raw_;
};

}  // namespace rdfs::transport::verbs
