// Report: what a run has done and what went wrong, counted and said.
//
// Any thread. Errors and names are printed at once, each in one piece; progress is drawn by one
// thread (Draw) on standard error, when that is a terminal. Draw and Clear wait for nobody: where
// the terminal takes nothing, or a name is waited with, a frame is left out.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "transport/base/clock.h"
#include "transport/base/status.h"

namespace rdfs::copy {

// Exit statuses, beside 0; what is said of them in --help is in command/options.cc.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
// Nothing failed, but files went away between being found and being read. As rsync has it.
inline constexpr int kExitVanished = 24;

// What there is to do, as far as it is known.
struct Totals {
  std::uint64_t files = 0, bytes = 0;
};

class Report {
 public:
  struct Settings {
    std::string name;       // the program's
    bool lists = false;     // -v: every name
    bool progress = false;  // see ShowsProgress
  };
  Report(Settings settings, TimePoint start) : settings_(std::move(settings)), start_(start) {}

  // One file failed, the others go on. `path`: bytes.
  void Failed(const std::string& path, const Status& status);
  // It was there when it was found, and is no more.
  void Vanished(const std::string& path);
  // Something worth a sentence that is no failure.
  void Note(const std::string& sentence);
  // -v: what was done to which name; "" when it was copied.
  void Done(const std::string& path, const char* what = "");
  void Copied(std::uint64_t files = 1) { files_ += files; }
  std::atomic<std::uint64_t>& bytes() { return bytes_; }
  // What an interrupted copy had brought already.
  std::atomic<std::uint64_t>& kept() { return kept_; }
  // Of all that there is to do what is done without being copied: it is there already, is a link or
  // a hole, or cannot be had. For progress.
  void Passed(std::uint64_t files, std::uint64_t bytes) {
    passed_files_ += files;
    passed_bytes_ += bytes;
  }
  [[nodiscard]] Totals passed() const { return {passed_files_, passed_bytes_}; }
  void SetPassed(const Totals& passed) {
    passed_files_ = passed.files;
    passed_bytes_ = passed.bytes;
  }

  [[nodiscard]] bool progress() const { return settings_.progress; }
  [[nodiscard]] std::uint64_t files() const { return files_; }
  // `totals`: all zero while nobody knows. Where there is progress.
  void Draw(const Totals& totals, TimePoint now);
  void Clear();
  [[nodiscard]] std::string Line(const Totals& totals, double rate, double files_rate) const;
  // "3 files, 1.0 GiB in 0.43 s (2.51 GB/s, 7 files/s)"
  [[nodiscard]] std::string Summary(TimePoint now) const;
  [[nodiscard]] int ExitCode() const;
  // The same at the end: says if standard output has not taken all names, which is a failure.
  int End();

 private:
  void Print(std::FILE* where, const std::string& text);

  const Settings settings_;
  const TimePoint start_;
  std::atomic<std::uint64_t> files_{0}, bytes_{0}, kept_{0}, failed_{0}, vanished_{0};
  std::atomic<std::uint64_t> passed_files_{0}, passed_bytes_{0};
  std::mutex mutex_;  // the terminal
  bool on_screen_ = false;
  TimePoint drawn_{};
  std::uint64_t drawn_files_ = 0, drawn_bytes_ = 0;
  double rate_ = 0, files_rate_ = 0;
};

}  // namespace rdfs::copy
