// What the caller's ways to copy have in common. Internal to caller.cc and caller_across.cc.
#pragma once

#include <chrono>
#include <optional>

#include "tools/copy/file/names.h"
#include "tools/copy/remote/talk.h"
#include "tools/copy/remote/wire.h"
#include "tools/copy/report/report.h"

namespace rdfs::copy {

// What concerns single files, from either end, told here. Theirs is named with the host.
inline TalkSettings SettingsFor(Report& report, int interrupts) {
  TalkSettings settings;
  settings.interrupts = interrupts;
  settings.tell = [&report](const Notice& notice) {
    switch (notice.what) {
      case Notice::What::kVanished:
        report.Vanished(notice.path);
        break;
      case Notice::What::kFailed:
        report.Failed(notice.path, {Code::kErrno, Shown(notice.sentence)});
        break;
      case Notice::What::kWould:
        if (!notice.path.ends_with('/')) report.Copied();
        report.Done(notice.path, notice.sentence == "compare" ? "compare " : "");
        break;
      case Notice::What::kGone:
        report.Done(notice.path, "deleted ");
        break;
    }
  };
  return settings;
}

// Bytes of one machine's errand, behind those of the ones before.
class Meter {
 public:
  explicit Meter(Report& report)
      : report_(report),
        before_{report.files(), report.bytes()},
        kept_before_(report.kept()),
        passed_before_(report.passed()) {}
  // `kept`, of what an interrupted copy had brought, `passed` (Report::Passed), and `totals`, when
  // they are known: of this errand.
  void Show(std::uint64_t bytes, std::uint64_t kept = 0, const Totals& passed = {},
            const std::optional<Totals>& totals = {}) {
    report_.bytes() = before_.bytes + bytes;
    report_.kept() = kept_before_ + kept;
    report_.SetPassed({passed_before_.files + passed.files, passed_before_.bytes + passed.bytes});
    const TimePoint now = BootClock::now();
    if (now < next_) return;
    next_ = now + kDrawEvery;
    report_.Draw(totals ? BehindBefore(*totals) : Totals(), now);
  }
  // What a far end has told of a copy that is not ours. Its files are counted when it has ended.
  void Show(const Progress& progress, const std::optional<Totals>& totals) {
    Show(progress.copied.bytes, 0,
         {progress.copied.files + progress.passed.files, progress.passed.bytes}, totals);
  }
  void EndOfOthers() { report_.SetPassed(passed_before_); }

 private:
  static constexpr std::chrono::milliseconds kDrawEvery{200};
  [[nodiscard]] Totals BehindBefore(const Totals& totals) const {
    return {before_.files + passed_before_.files + totals.files,
            before_.bytes + kept_before_ + passed_before_.bytes + totals.bytes};
  }

  Report& report_;
  const Totals before_;
  const std::uint64_t kept_before_;
  const Totals passed_before_;
  TimePoint next_{};
};

}  // namespace rdfs::copy
