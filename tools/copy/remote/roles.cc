#include "tools/copy/remote/roles.h"

#include "tools/copy/remote/threads.h"

namespace rdfs::copy {

Selection::Selection(const Task& task) {
  for (const std::string& rule : task.rules) rules_.Add(rule[0] == '+', rule.substr(1));
  if (!task.has_list) return;
  list_.emplace(rules_.empty() ? nullptr : &rules_);
  for (const std::string& path : task.listed) {
    status_ = list_->Add(path);
    if (!status_.ok()) return;
  }
}

namespace {

ScanOptions ScanFor(const Task& task, Selection& selection) {
  return {.recurse = task.recurse,
          .follow = task.follow,
          .follow_source = task.follow_source,
          .one_file_system = task.one_file_system,
          .filter = selection.filter()};
}

}  // namespace

WalkOptions WalkFor(const Task& task, const Found& found, Selection& selection) {
  WalkOptions walk;
  walk.scan = ScanFor(task, selection);
  walk.list = selection.list();
  walk.keep = task.keep;
  walk.paths = found.paths;
  walk.holes = !task.in_place;
  walk.offers = task.sync || task.update || task.remove || task.checksum || task.dry_run;
  walk.limit = task.limit;
  walk.digests = task.checksum && !task.dry_run;
  walk.resume = task.resume && walk.offers;
  return walk;
}

ReceiverSettings ReceiverFor(const Task& task, const std::string& destination, Selection& selection,
                             mode_t mask) {
  ReceiverSettings settings;
  settings.destination = ExpandHome(destination);
  settings.directory_wanted = task.directory_wanted;
  settings.options.keep = task.keep;
  settings.options.umask = mask;
  settings.options.in_place = task.in_place;
  settings.options.resume = task.resume;
  settings.threads = CrewThreads();
  settings.policy = {.update = task.update, .sync = task.sync, .checksum = task.checksum};
  settings.remove = task.remove;
  settings.verify = task.verify;
  settings.dry_run = task.dry_run;
  settings.asked = ScanFor(task, selection);
  return settings;
}

}  // namespace rdfs::copy
