// What this machine can do: facts read from the kernel and the libraries. Reads only; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/rdinfo/fact.h"

namespace rdfs::rdinfo {

std::vector<Section> DescribeMachine();
// One part of it (rdma.cc): devices, ports, memory that may be pinned.
Section DescribeRdma();

// A file's text, or its first line; empty when it cannot be read.
std::string ReadFile(const std::string& path);
std::string FirstLine(const std::string& path);

// "key : value" lines as /proc files have them: the value of `key`, empty when it is not there.
std::string FindField(std::string_view text, std::string_view key);
// What follows ".so." in a library's file name; the name where that has none.
std::string LibraryVersion(std::string_view file);
// Whether a line of `text` is `word`, blanks aside: fuse.conf(5) and ufw.conf.
bool HasLine(std::string_view text, std::string_view word);

}  // namespace rdfs::rdinfo
