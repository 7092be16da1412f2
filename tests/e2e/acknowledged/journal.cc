#include "tests/e2e/acknowledged/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace rdfs::acknowledged {

Journal::Journal(const std::string& path)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (file_.valid()) return;
  std::perror(path.c_str());
  std::exit(2);
}

void Journal::Write(const std::string& line) {
  if (::write(file_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) return;
  std::perror("the journal");
  std::exit(2);
}

void Journal::Begin(const Op& op) { Write(fmt::format("< {}\n", op.ToText())); }
void Journal::End(const Op& op, int error) { Write(fmt::format("> {} {}\n", op.number, error)); }

std::string JournalPath(const std::string& directory, int thread) {
  return fmt::format("{}/thread-{}", directory, thread);
}

std::vector<Entry> ReadJournal(const std::string& path) {
  std::vector<Entry> entries;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (in.eof() || line.size() < 2) break;  // without its end
    const std::string rest = line.substr(2);
    if (line[0] == '<') {
      const auto op = Op::FromText(rest);
      if (op) entries.push_back({.op = *op, .error = std::nullopt});
    } else if (!entries.empty()) {
      entries.back().error = std::stoi(rest.substr(rest.find(' ') + 1));
    }
  }
  return entries;
}

}  // namespace rdfs::acknowledged
