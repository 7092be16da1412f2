// Transcript: what a sequence of system calls answered, as lines of text, so that the same sequence
// on a local directory and on a mount can be compared line by line, errno included.
//
// One thread. Paths are relative to the directory given; nothing outside it is touched. What may
// honestly differ between file systems (inode and device numbers, block counts, directory sizes,
// exact times) is left out of the lines or replaced by what must hold of it.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace rdfs::e2e {

class Transcript {
 public:
  explicit Transcript(std::string directory);
  ~Transcript();
  Transcript(const Transcript&) = delete;
  Transcript& operator=(const Transcript&) = delete;

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] int dir() const { return dir_; }
  [[nodiscard]] std::string Path(std::string_view name) const;

  // Notes "what: value".
  void Note(std::string_view what, std::string_view value);
  void Note(std::string_view what, long long value);
  // Notes the result of a call that returns -1 and sets errno; returns it.
  long long Call(std::string_view what, long long result);

  // Opens relative to the directory; notes only whether it worked and the errno. -1 on failure.
  int Open(const char* name, int flags, mode_t mode = 0644);
  void Close(int fd);
  // Notes type, permissions, link count, size, owner and group of a name (not followed) or
  // descriptor.
  void Stat(const char* name);
  void FStat(std::string_view what, int fd);
  // Notes the names in a directory, sorted.
  void List(const char* name);
  // Notes the content of a file: length and a checksum, or all of it when it is short.
  void Content(const char* name);

 private:
  void NoteStat(std::string_view what, int result, const struct stat& st);

  std::string directory_;
  int dir_ = -1;
  std::vector<std::string> lines_;
};

}  // namespace rdfs::e2e
