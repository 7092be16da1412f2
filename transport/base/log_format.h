// What a line of the log looks like on standard error: for a person, for a program (RDFS_LOG=json),
// and with the level in front that the journal takes off again. Pure but for DetectLogStyle.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "transport/base/log.h"

namespace rdfs {

struct LogStyle {
  bool json = false;
  bool journal = false;  // "<3>" in front, see sd-daemon(3)
};

// "name: level: line", or an object with time (UTC, RFC 3339), level, program and message; without
// a newline.
std::string FormatLogLine(const LogStyle& style, std::chrono::system_clock::time_point time,
                          LogLevel level, std::string_view name, std::string_view line);

// Whether $JOURNAL_STREAM, "device:inode", is about this file (systemd.exec(5)).
bool IsJournal(std::string_view journal_stream, dev_t device, ino_t inode);

// Of this process's standard error, by $JOURNAL_STREAM and $RDFS_LOG. Before there is a second
// thread.
LogStyle DetectLogStyle();

// For what is printed on standard error without the log: "<3>", or nothing.
std::string_view ErrorPrefix();

// Standard error has become something else: the log's lines take the form that fits. Before other
// threads log.
void LogToWhereStandardErrorIs();

}  // namespace rdfs
