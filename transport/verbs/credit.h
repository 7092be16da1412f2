// CreditLedger: who may send how many frames. Pure: no clock, no I/O; one thread.
//
// A SEND that finds no receive posted breaks the queue pair (iWARP) or stalls it (InfiniBand), so a
// sender never has more frames under way than the peer has receives posted. Each side counts:
//
//   available  frames that it may send now
//   used       frames sent whose receives the peer has not given back; available + used is always
//              the peer's number of receives, as far as granted
//   owed       receives of its own that it has posted again and not told the peer about
//
// Credits travel in the header of every frame. When `owed` grows to half of the receives and no
// frame goes the other way, a frame of nothing but credits is due.
//
// No deadlock: a message never takes the last credit, so that a frame of credits can always go.
// Were both sides at 0 with nothing under way, then the one whose last frame came later (say A) had
// sent a frame of credits (nothing else takes the last one), which gave B half or more. B must have
// used all of it since; each of these frames carried all that B owed, A's last frame included, so A
// is not at 0.
//
// Hostile peers: it can grant at most what was used, so every counter stays bounded by the number
// of receives that it announced, which is clamped to kMaxSlots. A peer that grants receives it has
// not posted breaks its own connection only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace rdfs::transport::verbs {

class CreditLedger {
 public:
  // More than any send queue of ours could keep busy.
  static constexpr std::uint32_t kMaxSlots = 1024;

  // `own_slots`: receives that this side has posted. Both sides begin with `opening_credits` of the
  // peer's receives; the others are owed from the start and go out with the first frame.
  CreditLedger(std::uint32_t own_slots, std::uint32_t opening_credits)
      : own_slots_(own_slots), available_(opening_credits), owed_(own_slots - opening_credits) {}

  // The peer's opening: it has `slots` receives in all. Call before OnFrame of that frame, whose
  // credits are the first grant. False when the number is impossible.
  [[nodiscard]] bool OnOpening(std::uint32_t slots) {
    slots = std::min(slots, kMaxSlots);
    if (slots < available_ + used_) return false;
    used_ = slots - available_;
    return true;
  }
  // A frame of the peer's has arrived and gives back `credits`.
  void OnFrame(std::uint32_t credits) {
    credits = std::min(credits, used_);
    used_ -= credits;
    available_ += credits;
  }
  // `count` receives have been posted again.
  void OnReposted(std::uint32_t count) { owed_ = std::min(owed_ + count, own_slots_); }

  // Messages (and a kBye) leave the last credit to a frame of credits.
  [[nodiscard]] std::uint32_t messages_allowed() const {
    return available_ > 0 ? available_ - 1 : 0;
  }
  [[nodiscard]] bool credit_frame_due() const { return available_ > 0 && owed_ >= own_slots_ / 2; }
  [[nodiscard]] bool can_send() const { return available_ > 0; }
  // Pays for one frame and returns the credits for its header. Only when can_send().
  [[nodiscard]] std::uint16_t TakeForFrame() {
    --available_;
    ++used_;
    return static_cast<std::uint16_t>(std::exchange(owed_, 0U));
  }

  [[nodiscard]] std::uint32_t available() const { return available_; }
  [[nodiscard]] std::uint32_t used() const { return used_; }
  [[nodiscard]] std::uint32_t owed() const { return owed_; }

 private:
  std::uint32_t own_slots_;
  std::uint32_t available_;
  std::uint32_t used_ = 0;
  std::uint32_t owed_;
};

}  // namespace rdfs::transport::verbs
