// The journal: what a thread asked for and what it was answered, a line each, on a disk that is not
// on test. A call is noted before it is made, so that what was under way when its process was
// killed is known to be unsure.
//
//   < number kind ...     begins (op.h)
//   > number errno        ended; 0: done
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/acknowledged/op.h"
#include "transport/base/fd.h"

namespace rdfs::acknowledged {

class Journal {
 public:
  // Ends the process when it cannot be written: without it nothing is known.
  explicit Journal(const std::string& path);
  void Begin(const Op& op);
  void End(const Op& op, int error);

 private:
  void Write(const std::string& line);
  Fd file_;
};

struct Entry {
  Op op;
  std::optional<int> error;  // nothing: no answer was noted
};
std::string JournalPath(const std::string& directory, int thread);
// Of a journal that was cut short the whole lines count.
std::vector<Entry> ReadJournal(const std::string& path);

}  // namespace rdfs::acknowledged
