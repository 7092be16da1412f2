#include "tools/copy/report/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "tools/copy/file/names.h"
#include "tools/pipe/command/progress.h"
#include "transport/base/say.h"

namespace rdfs::copy {
namespace {

using pipe::HumanBytes;
using pipe::HumanRate;

constexpr std::size_t kBarWidth = 24;
// How far a new measurement moves the rate that is shown.
constexpr double kNewWeight = 0.3;

double Seconds(std::chrono::nanoseconds span) {
  return std::max(std::chrono::duration<double>(span).count(), 1e-9);
}

std::string Span(double seconds) {
  constexpr double kMost = 1000 * 3600;
  seconds = std::min(seconds, kMost);
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace

void Report::Print(std::FILE* where, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (on_screen_) Say("\r\x1b[K");
  on_screen_ = false;
  std::fputs(text.c_str(), where);
  if (where == stdout && settings_.progress) std::fflush(stdout);
}

void Report::Failed(const std::string& path, const Status& status) {
  ++failed_;
  Print(stderr, fmt::format("{}: {}: {}\n", settings_.name, Shown(path), status.message()));
}

void Report::Vanished(const std::string& path) {
  ++vanished_;
  Print(stderr,
        fmt::format("{}: {}: it vanished before it was copied\n", settings_.name, Shown(path)));
}

void Report::Note(const std::string& sentence) {
  Print(stderr, fmt::format("{}: {}\n", settings_.name, sentence));
}

void Report::Done(const std::string& path, const char* what) {
  if (!settings_.lists) return;
  Print(stdout, fmt::format("{}{}\n", what, Shown(path)));
}

void Report::Draw(const Totals& totals, TimePoint now) {
  if (!settings_.progress) return;
  // Who holds it may wait for a reader of names.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !MaySay()) return;
  const double span = Seconds(now - (drawn_ == TimePoint{} ? start_ : drawn_));
  const std::uint64_t files = files_ + passed_files_;
  const std::uint64_t bytes = bytes_;
  const double rate = static_cast<double>(bytes - drawn_bytes_) / span;
  const double files_rate = static_cast<double>(files - drawn_files_) / span;
  const double weight = drawn_ == TimePoint{} ? 1 : kNewWeight;
  rate_ += weight * (rate - rate_);
  files_rate_ += weight * (files_rate - files_rate_);
  drawn_ = now;
  drawn_files_ = files;
  drawn_bytes_ = bytes;
  Say("\r{}\x1b[K", Line(totals, rate_, files_rate_));
  std::fflush(stderr);
  on_screen_ = true;
}

void Report::Clear() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // who prints has removed it
  if (on_screen_ && MaySay()) Say("\r\x1b[K");
  on_screen_ = false;
}

std::string Report::Line(const Totals& totals, double rate, double files_rate) const {
  const std::uint64_t files = files_ + passed_files_;
  const std::uint64_t bytes = bytes_;
  const std::string rates = fmt::format("{}  {:.0f} files/s", HumanRate(rate), files_rate);
  if (totals.files == 0) {
    return fmt::format("{}: {} files, {}  {}", settings_.name, files,
                       HumanBytes(static_cast<double>(bytes)), rates);
  }
  // Whichever is slower in coming: bytes of large files, or names of small ones.
  const std::uint64_t there = bytes + kept_ + passed_bytes_;
  const std::uint64_t left_bytes = totals.bytes - std::min(there, totals.bytes);
  const std::uint64_t left_files = totals.files - std::min(files, totals.files);
  double left = 0;
  if (rate > 0) left = static_cast<double>(left_bytes) / rate;
  // While a large one is under way no rate of files tells anything.
  constexpr double kLeastFilesRate = 1;
  if (files_rate >= kLeastFilesRate || left_bytes == 0) {
    left = std::max(left, static_cast<double>(left_files) / std::max(files_rate, kLeastFilesRate));
  }
  const double part = totals.bytes > 0
                          ? 1 - static_cast<double>(left_bytes) / static_cast<double>(totals.bytes)
                          : 1 - static_cast<double>(left_files) / static_cast<double>(totals.files);
  const auto full = static_cast<std::size_t>(part * static_cast<double>(kBarWidth));
  return fmt::format("{}: [{}{}] {:3.0f} %  {} of {} files, {} of {}  {}  {} left", settings_.name,
                     std::string(full, '#'), std::string(kBarWidth - full, '.'), part * 100, files,
                     totals.files, HumanBytes(static_cast<double>(there)),
                     HumanBytes(static_cast<double>(totals.bytes)), rates, Span(left));
}

std::string Report::Summary(TimePoint now) const {
  const double seconds = Seconds(now - start_);
  const auto bytes = static_cast<double>(bytes_);
  const auto files = static_cast<double>(files_);
  const std::string kept =
      kept_ > 0 ? fmt::format("; {} were there", HumanBytes(static_cast<double>(kept_))) : "";
  return fmt::format("{} {}, {} in {:.2f} s ({}, {:.0f} files/s){}", files_.load(),
                     files_ == 1 ? "file" : "files", HumanBytes(bytes), seconds,
                     HumanRate(bytes / seconds), files / seconds, kept);
}

int Report::End() {
  if (const Status told = Told(); !told.ok()) {
    ++failed_;
    Note(told.message());
  }
  return ExitCode();
}

int Report::ExitCode() const {
  if (failed_ > 0) return kExitFailed;
  return vanished_ > 0 ? kExitVanished : 0;
}

}  // namespace rdfs::copy
