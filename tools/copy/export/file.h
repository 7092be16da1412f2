// ExportFile: an open file or directory of an export, as File wants it.
//
// A directory is its handle: nothing is open at the server but while its names are read. They come
// with attributes and handles, which Stat and Open take once instead of asking for each; where that
// has got another file since, they look it up. A chain of the directories on the way stands for
// "..", and the export's root is "/" and above itself.
//
// As File. Owned by whoever opened it, and gone before its session.
#pragma once

#include <atomic>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "tools/copy/export/session.h"
#include "tools/copy/file/file.h"
#include "transport/base/random.h"

namespace rdfs::copy {

class ExportFile final : public File {
 public:
  static FilePtr Root(ExportSession& session, const fs::client::NamedFile& root);
  ~ExportFile() override;

  FilePtr Open(const std::string& path, int flags, mode_t mode) override;
  FilePtr OpenBeneath(const std::string& path, int flags) override;
  int Stat(const std::string& path, bool follow, struct stat& out) override;
  int ReadLink(const std::string& path, std::string& target) override;
  int MakeDirectory(const std::string& name, mode_t mode) override;
  int MakeSymlink(const std::string& target, const std::string& name) override;
  int MakeNode(const std::string& name, mode_t mode, dev_t device) override;
  int Link(const std::string& name, File& to, const std::string& new_name) override;
  int Rename(const std::string& name, const std::string& new_name) override;
  int Remove(const std::string& name, bool is_directory) override;
  int ReadNames(std::deque<std::string>& out) override;

  int SetMode(const std::string& name, mode_t mode) override;
  int SetOwner(const std::string& name, uid_t uid, gid_t gid) override;
  int SetTimes(const std::string& name, const std::array<timespec, 2>& times) override;
  ssize_t ListXattrs(const std::string& name, char* out, std::size_t size) override;
  ssize_t GetXattr(const std::string& name, const char* attribute, char* out,
                   std::size_t size) override;
  int SetXattr(const std::string& name, const char* attribute, const std::string& value) override;
  int RemoveXattr(const std::string& name, const char* attribute) override;
  // Nobody knows what the server lets us do before it has refused.
  [[nodiscard]] bool IsPrivileged() const override { return false; }
  // Asks once in a session, by making a file.
  std::optional<uid_t> Maker() override;

  int Lock() override;

  ssize_t Read(MutableByteSpan out, std::uint64_t offset) override;
  ssize_t Write(ByteSpan bytes, std::uint64_t offset) override;
  int Truncate(std::uint64_t size) override;
  int PunchHole(std::uint64_t offset, std::uint64_t length) override;
  off_t Seek(std::uint64_t offset, int whence) override;
  int Flush() override { return 0; }  // a write is answered when the server has made it
  int Sync() override;
  ssize_t CopyRange(File& to, std::uint64_t offset, std::size_t length) override;

  [[nodiscard]] const void* system() const override { return &session_; }

 private:
  using Handle = fs::Handle;
  // A file, and the directories on the way to it.
  struct Way;
  using WayPtr = std::shared_ptr<const Way>;
  struct Way {
    fs::client::NamedFile file;
    std::string name;  // in `above`
    WayPtr above;      // none: the root
  };
  struct Links {
    bool follow_last = false;
    bool none = false;  // nor on the way
    bool anew = false;  // no name as it was listed
  };
  // A name that was listed or made. `is_current`: nothing has been changed since.
  struct Known {
    fs::client::NamedFile file;
    bool is_current = true;
  };

 public:  // for make_shared
  ExportFile(ExportSession& session, WayPtr way, fs::client::OpenPtr open,
             const fs::AttrWire& attributes)
      : session_(session), way_(std::move(way)), open_(std::move(open)), attributes_(attributes) {}

 private:
  [[nodiscard]] const Handle& handle() const { return way_->file.handle; }
  template <typename Call>
  auto AsItIs(Links links, Call call) -> decltype(call(links));
  template <typename Call>
  auto OfNamed(const std::string& name, Call call) -> decltype(call(Handle()));
  FilePtr OpenAt(const std::string& path, Links links, int flags);
  Result<FilePtr> OpenWay(const WayPtr& way, int flags);
  FilePtr Create(const std::string& name, int flags, mode_t mode);
  Result<WayPtr> Resolve(std::string_view path, Links links);
  Result<fs::client::NamedFile> Find(const WayPtr& directory, const std::string& name);
  Result<Handle> HandleOf(const std::string& name);
  int Set(const std::string& name, const fs::client::SetAttributes& set);
  void Remember(const std::string& name, const fs::client::NamedFile& file);
  void NoteChange(const std::string& name);
  void Forget(const std::string& name);
  struct stat ToStat(const fs::AttrWire& attr) const;

  ExportSession& session_;
  const WayPtr way_;
  const fs::client::OpenPtr open_;  // of a regular file that is open to be read or written
  const fs::AttrWire attributes_;   // as it was opened
  // Whether nobody has asked for them yet, and nothing was changed.
  std::atomic<bool> is_current_{true};
  const std::uint64_t owner_ = RandomU64();  // of its lock
  // Names: one thread's.
  fs::client::OpenPtr names_;
  std::uint64_t cookie_ = 0;
  std::mutex mutex_;  // guards what follows
  std::unordered_map<std::string, Known> known_, known_before_;
};

}  // namespace rdfs::copy
