#include "fs/fuse/worker/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <string>

#include "transport/base/fd.h"

namespace rdfs::fs::fuse {
namespace {

constexpr std::chrono::seconds kLookAgain{1};

constexpr std::uint64_t Bit(int signal) { return std::uint64_t{1} << (signal - 1); }
// Those whose default is not to end the process (signal(7)).
constexpr std::uint64_t kHarmless = Bit(SIGCHLD) | Bit(SIGCONT) | Bit(SIGSTOP) | Bit(SIGTSTP) |
                                    Bit(SIGTTIN) | Bit(SIGTTOU) | Bit(SIGURG) | Bit(SIGWINCH);

// The signal set behind `name` ("SigPnd:"), in hexadecimal; none if it is not there.
std::uint64_t SignalSet(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = status.substr(at + name.size());
  const std::size_t digits = rest.find_first_not_of(" \t");
  if (digits == std::string_view::npos) return 0;
  std::uint64_t set = 0;
  std::from_chars(rest.data() + digits, rest.data() + rest.size(), set, 16);
  return set;
}

}  // namespace

Interrupts::Decision Interrupts::Track(std::uint64_t unique, const Call& call) {
  tracked_[unique] = {.call = call};
  const auto some = early_.begin() + static_cast<std::ptrdiff_t>(std::min(next_early_, kEarly));
  if (std::find(early_.begin(), some, unique) == some) return {};
  interrupted_.push_back(unique);
  next_look_ = {};
  if (!call.may_wait) return {};
  tracked_[unique].cancelled = true;
  return {call.ticket, Action::kCancel};
}

void Interrupts::Untrack(std::uint64_t unique) { tracked_.erase(unique); }

Interrupts::Decision Interrupts::Interrupt(std::uint64_t unique, TimePoint now) {
  const auto entry = tracked_.find(unique);
  if (entry == tracked_.end()) {
    early_[next_early_++ % kEarly] = unique;
    return {};
  }
  interrupted_.push_back(unique);
  next_look_ = std::min(next_look_, now + kLookAgain);
  return Decide(entry->second);
}

Interrupts::Decision Interrupts::Decide(Entry& entry) {
  const Call& call = entry.call;
  if (!entry.cancelled) {
    if (!call.may_wait && !is_dying_(call.caller)) return {};
    entry.cancelled = true;
    return {call.ticket, Action::kCancel};
  }
  const bool nobody_waits = is_dying_(call.caller);
  return {call.ticket, nobody_waits ? Action::kAbandon : Action::kNone};
}

std::vector<Interrupts::Decision> Interrupts::Look(TimePoint now) {
  std::vector<Decision> decisions;
  if (now < next_look_) return decisions;
  std::erase_if(interrupted_, [&](std::uint64_t unique) {
    const auto entry = tracked_.find(unique);
    if (entry == tracked_.end()) return true;
    const Decision decision = Decide(entry->second);
    if (decision.action != Action::kNone) decisions.push_back(decision);
    return false;
  });
  next_look_ = interrupted_.empty() ? TimePoint::max() : now + kLookAgain;
  return decisions;
}

bool SaysDying(std::string_view status) {
  const std::uint64_t pending = SignalSet(status, "\nSigPnd:") | SignalSet(status, "\nShdPnd:");
  if ((pending & Bit(SIGKILL)) != 0) return true;
  const std::uint64_t spared = SignalSet(status, "\nSigBlk:") | SignalSet(status, "\nSigIgn:") |
                               SignalSet(status, "\nSigCgt:");
  return (pending & ~spared & ~kHarmless) != 0;
}

bool IsDying(pid_t thread) {
  if (thread <= 0) return false;
  const std::string path = "/proc/" + std::to_string(thread) + "/status";
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  std::array<char, 4096> text{};
  const ssize_t got = read(file.get(), text.data(), text.size());
  return got > 0 && SaysDying({text.data(), static_cast<std::size_t>(got)});
}

}  // namespace rdfs::fs::fuse
