#include "tools/copy/remote/roles.h"

#include "tools/copy/remote/threads.h"

namespace rdfs::copy {

Rules RulesOf(const Task& task) {
  Rules out;
  for (const std::string& rule : task.rules) out.Add(rule[0] == '+', rule.substr(1));
  return out;
}

WalkOptions WalkFor(const Task& task, const Found& found, Rules& rules) {
  WalkOptions walk;
  walk.scan.recurse = task.recurse;
  walk.scan.follow = task.follow;
  walk.scan.follow_source = task.follow_source;
  walk.scan.one_file_system = task.one_file_system;
  if (!rules.empty()) walk.scan.filter = &rules;
  walk.keep = task.keep;
  walk.paths = found.paths;
  walk.holes = !task.in_place;
  walk.offers = task.sync || task.update || task.remove;
  return walk;
}

ReceiverSettings ReceiverFor(const Task& task, const std::string& destination, Rules& rules,
                             mode_t mask) {
  ReceiverSettings settings;
  settings.destination = ExpandHome(destination);
  settings.directory_wanted = task.directory_wanted;
  settings.options.keep = task.keep;
  settings.options.umask = mask;
  settings.options.in_place = task.in_place;
  settings.threads = CrewThreads();
  settings.policy = {.update = task.update, .sync = task.sync, .checksum = false};
  settings.remove = task.remove;
  if (!rules.empty()) settings.filter = &rules;
  return settings;
}

}  // namespace rdfs::copy
