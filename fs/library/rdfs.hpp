// rdfs.h for C++17: the same calls, with objects that give back what they hold. What only begins an
// operation on names (rdfs_submit_stat and its like) is called by Queue::get().
//
// Nothing throws; what fails returns a negative errno, and takes an rdfs_error or leaves its
// sentence with the queue, as rdfs.h says. Destruction in the opposite order of making: what was
// made last goes first. A default-constructed object holds nothing; moving from one leaves nothing.
#ifndef RDFS_HPP
#define RDFS_HPP

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "rdfs.h"

namespace rdfs {

namespace internal {

// As C takes it. Null, which the functions of rdfs.h refuse with -EINVAL, where a NUL inside would
// cut it off: it would name something else.
inline const char* Text(const std::string& text) {
  return text.find('\0') == std::string::npos ? text.c_str() : nullptr;
}
// The same for texts that may be null there: tells and returns -EINVAL.
inline int RefuseNul(rdfs_error* error) {
  if (error != nullptr) {
    error->number = EINVAL;
    std::strncpy(error->sentence, "a NUL byte is inside a text", sizeof error->sentence);
  }
  return -EINVAL;
}
// Null, where the option key_file stands for it.
inline const char* Key(const std::string& key) { return key.empty() ? nullptr : key.c_str(); }

}  // namespace internal

struct Delete {
  void operator()(rdfs_export* held) const { (void)rdfs_disconnect(held); }
  void operator()(rdfs_queue* held) const { rdfs_queue_close(held); }
  void operator()(rdfs_buffer* held) const { rdfs_buffer_free(held); }
  void operator()(rdfs_listing* held) const { rdfs_listing_free(held); }
  void operator()(rdfs_pipe* held) const { rdfs_pipe_close(held); }
};

using Buffer = std::unique_ptr<rdfs_buffer, Delete>;

class Export {
 public:
  static int Connect(const std::string& source, const std::string& options, Export& out,
                     rdfs_error* error = nullptr, std::size_t queue_bytes = 0) {
    if (internal::Text(source) == nullptr || internal::Text(options) == nullptr)
      return internal::RefuseNul(error);
    rdfs_export* made = nullptr;
    const int result = rdfs_connect(source.c_str(), options.c_str(), queue_bytes, &made, error);
    if (result == 0) out.held_.reset(made);
    return result;
  }
  [[nodiscard]] std::string transport() const {
    std::string text(512, '\0');
    const int length = rdfs_transport(get(), text.data(), text.size());
    text.resize(length < 0 ? 0 : std::min<std::size_t>(static_cast<std::size_t>(length), 511));
    return text;
  }
  [[nodiscard]] rdfs_export* get() const { return held_.get(); }

 private:
  std::unique_ptr<rdfs_export, Delete> held_;
};

class Listing {
 public:
  explicit Listing(rdfs_listing* held = nullptr) : held_(held) {}
  [[nodiscard]] std::size_t size() const { return rdfs_listing_count(held_.get()); }
  [[nodiscard]] const char* name(std::size_t index) const {
    return rdfs_listing_name(held_.get(), index);
  }
  [[nodiscard]] const rdfs_attributes* attributes(std::size_t index) const {
    return rdfs_listing_attributes(held_.get(), index);
  }

 private:
  std::unique_ptr<rdfs_listing, Delete> held_;
};

// An open file; closed, without a word, when it goes. Close tells whether something may be lost.
class File {
 public:
  File() = default;
  File(rdfs_queue* queue, rdfs_file* file) : queue_(queue), file_(file) {}
  File(File&& other) noexcept : queue_(other.queue_), file_(std::exchange(other.file_, nullptr)) {}
  File& operator=(File&& other) noexcept {
    std::swap(queue_, other.queue_);
    std::swap(file_, other.file_);
    return *this;
  }
  ~File() { (void)Close(); }
  int Close() { return file_ == nullptr ? 0 : rdfs_close(queue_, std::exchange(file_, nullptr)); }
  ssize_t Read(void* to, std::size_t length, std::uint64_t offset) const {
    return rdfs_pread(queue_, file_, to, length, offset);
  }
  ssize_t Write(const void* from, std::size_t length, std::uint64_t offset) const {
    return rdfs_pwrite(queue_, file_, from, length, offset);
  }
  int Sync(bool data_only = false) const { return rdfs_fsync(queue_, file_, data_only ? 1 : 0); }
  int Truncate(std::uint64_t size) const { return rdfs_truncate(queue_, file_, size); }
  int Stat(rdfs_attributes& out) const { return rdfs_fstat(queue_, file_, &out); }
  // Begun, and completed by Queue::Poll with `user`; rdfs_submit_X.
  int SubmitRead(const Buffer& to, std::size_t place, std::size_t length, std::uint64_t offset,
                 void* user) const {
    return rdfs_submit_pread(queue_, file_, to.get(), place, length, offset, user);
  }
  int SubmitWrite(const Buffer& from, std::size_t place, std::size_t length, std::uint64_t offset,
                  void* user) const {
    return rdfs_submit_pwrite(queue_, file_, from.get(), place, length, offset, user);
  }
  int SubmitSync(bool data_only, void* user) const {
    return rdfs_submit_fsync(queue_, file_, data_only ? 1 : 0, user);
  }
  [[nodiscard]] rdfs_file* get() const { return file_; }

 private:
  rdfs_queue* queue_ = nullptr;
  rdfs_file* file_ = nullptr;
};

class Queue {
 public:
  static int Open(const Export& of, Queue& out, rdfs_error* error = nullptr) {
    rdfs_queue* made = nullptr;
    const int result = rdfs_queue_open(of.get(), &made, error);
    if (result == 0) out.held_.reset(made);
    return result;
  }
  int OpenFile(const std::string& path, int flags, std::uint32_t mode, File& out) const {
    rdfs_file* made = nullptr;
    const int result = rdfs_open(get(), internal::Text(path), flags, mode, &made);
    if (result == 0) out = File(get(), made);
    return result;
  }
  int List(const std::string& path, Listing& out) const {
    rdfs_listing* made = nullptr;
    const int result = rdfs_list(get(), internal::Text(path), &made);
    if (result == 0) out = Listing(made);
    return result;
  }
  int Stat(const std::string& path, rdfs_attributes& out, int flags = 0) const {
    return rdfs_stat(get(), internal::Text(path), flags, &out);
  }
  int MakeDirectory(const std::string& path, std::uint32_t mode) const {
    return rdfs_mkdir(get(), internal::Text(path), mode);
  }
  int RemoveDirectory(const std::string& path) const {
    return rdfs_rmdir(get(), internal::Text(path));
  }
  int Unlink(const std::string& path) const { return rdfs_unlink(get(), internal::Text(path)); }
  int Rename(const std::string& from, const std::string& to, unsigned flags = 0) const {
    return rdfs_rename(get(), internal::Text(from), internal::Text(to), flags);
  }
  int Symlink(const std::string& target, const std::string& path) const {
    return rdfs_symlink(get(), internal::Text(target), internal::Text(path));
  }
  // Memory for File::SubmitRead and SubmitWrite; null when there is none left.
  [[nodiscard]] Buffer Allocate(std::size_t bytes) const {
    return Buffer(rdfs_buffer_alloc(get(), bytes));
  }
  // As rdfs_poll: what was begun and has ended since, at most `most`; how many, or -errno.
  int Poll(rdfs_completion* completions, int most, int timeout_ms) const {
    return rdfs_poll(get(), completions, most, timeout_ms);
  }
  [[nodiscard]] int fd() const { return rdfs_queue_fd(get()); }  // readable while Poll has any
  [[nodiscard]] const char* sentence() const { return rdfs_sentence(get()); }
  [[nodiscard]] rdfs_queue* get() const { return held_.get(); }  // for every other call

 private:
  std::unique_ptr<rdfs_queue, Delete> held_;
};

// One end of a stream. One that goes unfinished, or was not read to its end, has broken off. An
// empty key is none: then the option key_file names its file.
class Pipe {
 public:
  static int Send(const std::string& hosts, std::uint16_t port, const std::string& key,
                  const std::string& options, Pipe& out, rdfs_error* error = nullptr) {
    if (internal::Text(hosts) == nullptr || internal::Text(key) == nullptr ||
        internal::Text(options) == nullptr) {
      return internal::RefuseNul(error);
    }
    rdfs_pipe* made = nullptr;
    const int result =
        rdfs_pipe_send(hosts.c_str(), port, internal::Key(key), options.c_str(), &made, error);
    if (result == 0) out.held_.reset(made);
    return result;
  }
  static int Listen(std::uint16_t port, const std::string& key, const std::string& options,
                    Pipe& out, rdfs_error* error = nullptr) {
    if (internal::Text(key) == nullptr || internal::Text(options) == nullptr)
      return internal::RefuseNul(error);
    rdfs_pipe* made = nullptr;
    const int result = rdfs_pipe_listen(port, internal::Key(key), options.c_str(), &made, error);
    if (result == 0) out.held_.reset(made);
    return result;
  }
  ssize_t Write(const void* from, std::size_t length) const {
    return rdfs_pipe_write(get(), from, length);
  }
  ssize_t Read(void* to, std::size_t length) const { return rdfs_pipe_read(get(), to, length); }
  ssize_t ReadWithin(void* to, std::size_t length, int timeout_ms) const {
    return rdfs_pipe_read_within(get(), to, length, timeout_ms);
  }
  [[nodiscard]] int Finish() const { return rdfs_pipe_finish(get()); }
  [[nodiscard]] int port() const { return rdfs_pipe_port(get()); }
  [[nodiscard]] const char* sentence() const { return rdfs_pipe_sentence(get()); }
  [[nodiscard]] rdfs_pipe* get() const { return held_.get(); }

 private:
  std::unique_ptr<rdfs_pipe, Delete> held_;
};

}  // namespace rdfs

#endif
