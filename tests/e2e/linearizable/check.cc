#include "tests/e2e/linearizable/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <tuple>
#include <utility>

#include "tests/coherence/history.h"
#include "tests/coherence/models.h"
#include "tests/coherence/search.h"

namespace rdfs::linearizable {
namespace {

using coherence::LocksModel;
using coherence::NamesModel;
using coherence::RegisterModel;
using coherence::Timed;

constexpr std::uint64_t kFirstGhost = 1'000'000;  // above the numbers of workers

enum class Object { kContent, kMode, kNames, kFlocks, kRanges };

Object ObjectOf(What what) {
  switch (what) {
    case What::kWriteContent:
    case What::kReadContent:
      return Object::kContent;
    case What::kChmod:
    case What::kStatMode:
      return Object::kMode;
    case What::kFlock:
    case What::kUnflock:
      return Object::kFlocks;
    case What::kLockRange:
    case What::kUnlockRange:
      return Object::kRanges;
    default:
      return Object::kNames;
  }
}

// Errnos that say what is there; any other one is wrong.
bool IsAnswer(const Event& event) {
  if (event.error == 0) return true;
  switch (event.what) {
    case What::kCreate:
      return event.error == EEXIST;
    case What::kLink:
      return event.error == EEXIST || event.error == ENOENT;
    case What::kRename:
    case What::kUnlink:
      return event.error == ENOENT;
    case What::kFlock:
    case What::kLockRange:
      return event.error == EAGAIN || event.error == EINTR;
    default:
      return false;
  }
}

// Ranks in place of times: history.h wants all of them to differ. What is at one time overlaps.
std::string CheckContent(const std::vector<Event>& events) {
  std::vector<std::tuple<std::uint64_t, bool, std::size_t>> times;
  std::vector<coherence::Operation> history(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    history[i] = {.write = events[i].what == What::kWriteContent, .value = events[i].value};
    times.emplace_back(events[i].begin, false, i);
    times.emplace_back(events[i].end, true, i);
  }
  std::ranges::sort(times);
  std::uint64_t rank = 0;
  for (const auto& [time, is_end, i] : times) {
    (is_end ? history[i].end : history[i].begin) = ++rank;
  }
  return coherence::WhyNotLinearizable(history);
}

RegisterModel::Call ModeCall(const Event& event) {
  return {.write = event.what == What::kChmod, .value = event.value};
}

NamesModel::Call NamesCall(const Event& event) {
  using Kind = NamesModel::Kind;
  const auto kind = event.what == What::kCreate   ? Kind::kCreate
                    : event.what == What::kLink   ? Kind::kLink
                    : event.what == What::kRename ? Kind::kRename
                    : event.what == What::kUnlink ? Kind::kUnlink
                                                  : Kind::kLook;
  return {.kind = kind,
          .name = event.name,
          .other = event.other,
          .error = event.error,
          .inode = event.value};
}

LocksModel::Call LockCall(const Event& event) {
  using Kind = LocksModel::Kind;
  const bool unlock = event.what == What::kUnflock || event.what == What::kUnlockRange;
  const bool flock = event.what == What::kFlock || event.what == What::kUnflock;
  return {.kind = unlock             ? Kind::kUnlock
                  : event.error == 0 ? Kind::kGranted
                                     : Kind::kRefused,
          .owner = event.worker,
          .exclusive = event.exclusive != 0,
          .flock = flock,
          .start = event.name,
          .end = event.other};
}

template <typename Model>
std::string Searched(const std::vector<Event>& events,
                     typename Model::Call (*to_call)(const Event&)) {
  std::vector<Timed<typename Model::Call>> history;
  for (const Event& event : events) {
    history.push_back({.call = to_call(event), .begin = event.begin, .end = event.end});
  }
  return coherence::WhyNotLinearizable<Model>(history);
}

// Who was interrupted has no lock; for a moment the server may have thought that he has.
std::string CheckLocks(const std::vector<Event>& events) {
  std::vector<Timed<LocksModel::Call>> history;
  for (const Event& event : events) {
    LocksModel::Call call = LockCall(event);
    if (event.error != EINTR) {
      history.push_back({.call = call, .begin = event.begin, .end = event.end});
      continue;
    }
    call.owner = kFirstGhost + history.size();
    call.kind = LocksModel::Kind::kGranted;
    history.push_back({.call = call, .begin = event.begin});
    call.kind = LocksModel::Kind::kLost;
    history.push_back({.call = call, .begin = event.begin});
  }
  return coherence::WhyNotLinearizable<LocksModel>(history);
}

std::string CheckObject(Object object, const std::vector<Event>& events) {
  switch (object) {
    case Object::kContent:
      return CheckContent(events);
    case Object::kMode:
      return Searched<RegisterModel>(events, ModeCall);
    case Object::kNames:
      return Searched<NamesModel>(events, NamesCall);
    case Object::kFlocks:
    case Object::kRanges:
      return CheckLocks(events);
  }
  return {};
}

std::size_t Overlapping(const std::vector<Event>& sorted) {
  std::size_t count = 0;
  std::uint64_t end = 0;
  for (const Event& event : sorted) {
    if (event.begin < end) ++count;
    end = std::max(end, event.end);
  }
  return count;
}

// Who called when, in microseconds since the first call. Workers of one mount have numbers behind
// one another.
std::string Calls(const std::vector<Event>& sorted) {
  std::string out;
  for (const Event& event : sorted) {
    const auto at = [&](std::uint64_t time) {
      return static_cast<double>(time - sorted.front().begin) / 1000;
    };
    out += fmt::format("\n  worker {}: call {} {} {} value {} errno {} [{:.1f}, {:.1f}]",
                       event.worker, static_cast<unsigned>(event.what), event.name, event.other,
                       event.value, event.error, at(event.begin), at(event.end));
  }
  return out;
}

}  // namespace

Verdict Check(std::span<const Event> events) {
  static constexpr std::array kWords{"content", "mode", "names", "flocks", "ranges"};
  Verdict verdict;
  std::map<std::tuple<std::uint32_t, Object, std::uint32_t>, std::vector<Event>> objects;
  for (const Event& event : events) {
    if (!IsAnswer(event)) {
      verdict.wrong.push_back(fmt::format("round {}, worker {}: call {} answers errno {}",
                                          event.round, event.worker,
                                          static_cast<unsigned>(event.what), event.error));
      continue;
    }
    objects[{event.round, ObjectOf(event.what), event.group}].push_back(event);
  }
  verdict.objects = objects.size();
  for (auto& [key, calls] : objects) {
    const auto& [round, object, group] = key;
    std::ranges::sort(calls, {}, &Event::begin);
    verdict.overlapping += Overlapping(calls);
    const std::string why = CheckObject(object, calls);
    if (why.empty()) continue;
    verdict.wrong.push_back(fmt::format("round {}, {} {}: {}{}", round,
                                        kWords.at(static_cast<std::size_t>(object)), group, why,
                                        Calls(calls)));
  }
  return verdict;
}

}  // namespace rdfs::linearizable
