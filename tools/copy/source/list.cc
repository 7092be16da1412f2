#include "tools/copy/source/list.h"

#include <cerrno>
#include <fstream>
#include <iostream>

#include "tools/copy/file/names.h"

namespace rdfs::copy {

Status ReadList(const std::string& file, bool nul, Listed& list) {
  std::ifstream opened;
  if (file != "-") {
    opened.open(file, std::ios::binary);
    if (!opened) return Status::FromErrno(errno, "cannot open " + Shown(file));
  }
  std::istream& in = file == "-" ? std::cin : opened;
  std::string line;
  while (std::getline(in, line, nul ? '\0' : '\n')) {
    if (!line.empty()) RDFS_RETURN_IF_ERROR(list.Add(line));
  }
  if (in.bad()) return {Code::kErrno, EIO, "cannot read " + Shown(file)};
  return {};
}

}  // namespace rdfs::copy
