// What a task means to the parts that carry it out at the far end: the walk of one that sends, the
// settings of one that receives.
//
// Pure; any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "tools/copy/remote/receiver.h"
#include "tools/copy/remote/sources.h"
#include "tools/copy/remote/walk.h"
#include "tools/copy/remote/wire.h"
#include "tools/copy/source/filter.h"

namespace rdfs::copy {

// What takes part: the task's patterns and list.
class Selection {
 public:
  explicit Selection(const Task& task);
  Selection(const Selection&) = delete;
  Selection& operator=(const Selection&) = delete;
  // Errors: a list that is none.
  Status status() const { return status_; }
  // Null: everything.
  Filter* filter() {
    return list_ ? &*list_ : rules_.empty() ? nullptr : static_cast<Filter*>(&rules_);
  }
  const Listed* list() const { return list_ ? &*list_ : nullptr; }

 private:
  Rules rules_;
  std::optional<Listed> list_;
  Status status_;
};

// `selection` outlives the walk.
WalkOptions WalkFor(const Task& task, const Found& found, Selection& selection);
// `destination`: DST as the task names it. `selection` outlives the receiver.
ReceiverSettings ReceiverFor(const Task& task, const std::string& destination, Selection& selection,
                             mode_t mask);

}  // namespace rdfs::copy
