// rdfs.h: pipes.
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>

#include "fs/library/c_answers.h"
#include "tools/pipe/library/options.h"
#include "tools/pipe/library/stream.h"

using rdfs::fs::library::Give;
using rdfs::fs::library::Refuse;
using rdfs::fs::library::Say;

extern "C" {

int rdfs_pipe_send(const char* hosts, uint16_t port, const char* key, const char* options,
                   rdfs_pipe** out, rdfs_error* error) {
  if (hosts == nullptr || out == nullptr) {
    return Refuse(error, {rdfs::Code::kInvalidArgument, "rdfs_pipe_send: a NULL is no host"});
  }
  auto parsed = rdfs::pipe::SendOptionsFrom(hosts, port, key, options ? options : "");
  if (!parsed.ok()) return Refuse(error, parsed.status());
  return Give(rdfs_pipe::Send(*std::move(parsed)), out, error);
}

int rdfs_pipe_listen(uint16_t port, const char* key, const char* options, rdfs_pipe** out,
                     rdfs_error* error) {
  if (out == nullptr) return -EINVAL;
  auto parsed = rdfs::pipe::ReceiveOptionsFrom(port, key, options ? options : "");
  if (!parsed.ok()) return Refuse(error, parsed.status());
  return Give(rdfs_pipe::Listen(*std::move(parsed)), out, error);
}

int rdfs_pipe_port(const rdfs_pipe* pipe) { return pipe == nullptr ? -EINVAL : pipe->port(); }
int rdfs_pipe_transport(const rdfs_pipe* pipe, char* text, size_t size) {
  return pipe == nullptr ? -EINVAL : Say(pipe->transport(), text, size);
}
ssize_t rdfs_pipe_write(rdfs_pipe* pipe, const void* from, size_t length) {
  if (pipe == nullptr || (from == nullptr && length > 0) || length > SSIZE_MAX) return -EINVAL;
  return pipe->Write({static_cast<const std::byte*>(from), length});
}
ssize_t rdfs_pipe_read(rdfs_pipe* pipe, void* to, size_t length) {
  if (pipe == nullptr || to == nullptr || length > SSIZE_MAX) return -EINVAL;
  return pipe->Read({static_cast<std::byte*>(to), length});
}
ssize_t rdfs_pipe_read_within(rdfs_pipe* pipe, void* to, size_t length, int timeout_ms) {
  if (timeout_ms < 0) return rdfs_pipe_read(pipe, to, length);
  if (pipe == nullptr || to == nullptr || length > SSIZE_MAX) return -EINVAL;
  return pipe->Read({static_cast<std::byte*>(to), length}, std::chrono::milliseconds(timeout_ms));
}
int rdfs_pipe_finish(rdfs_pipe* pipe) { return pipe == nullptr ? -EINVAL : pipe->Finish(); }
const char* rdfs_pipe_sentence(const rdfs_pipe* pipe) {
  return pipe == nullptr ? "" : pipe->sentence();
}
void rdfs_pipe_close(rdfs_pipe* pipe) {
  if (pipe != nullptr && pipe->IsOfThisProcess()) delete pipe;
}

}  // extern "C"
