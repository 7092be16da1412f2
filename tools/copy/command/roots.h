// Roots: where the words of the command line begin: here, or at an export's root, with the session
// that this takes.
//
// Used by one thread; its Files by any, and gone before it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tools/copy/command/operand.h"
#include "tools/copy/export/session.h"
#include "tools/copy/file/file.h"
#include "tools/copy/local_copy.h"

namespace rdfs::copy {

class Roots {
 public:
  // `stop`: see ExportSession.
  Roots(ExportOptions options, std::atomic<bool>& stop)
      : options_(std::move(options)), stop_(stop) {}

  // How an operand that is not on a host is reached. Blocks, the first time that its export is
  // named. Errors: ExportSession's.
  Result<Source> Find(const Operand& operand);
  // The same for a SRC, which at an export may be a pattern; what matches nothing stays as it
  // stands. Of here, a shell has done that.
  Result<std::vector<Source>> FindAll(const Operand& operand);

  // A server that did not answer, in a sentence; ok where there was none.
  [[nodiscard]] Status Lost() const;
  // Whether owners were asked for in vain, and where; empty: they were not.
  [[nodiscard]] std::string KeptOwner() const;
  // How each export is reached.
  [[nodiscard]] std::vector<std::string> Describe() const;

 private:
  struct Root {
    Operand operand;
    std::unique_ptr<ExportSession> session;
  };
  const ExportOptions options_;
  std::atomic<bool>& stop_;
  std::vector<Root> roots_;
};

}  // namespace rdfs::copy
