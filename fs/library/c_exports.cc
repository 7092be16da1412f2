// rdfs.h: exports, queues, memory, listings, pipes.
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "fs/library/pipe.h"
#include "fs/library/pipe_options.h"
#include "fs/library/queue.h"

namespace {

void Tell(rdfs_error* error, const rdfs::Status& status) {
  if (error == nullptr) return;
  error->number = status.errno_value();
  const std::string text = status.message().empty()
                               ? rdfs::Status::FromErrno(error->number, "it failed").message()
                               : status.message();
  const std::size_t length = std::min(text.size(), sizeof error->sentence - 1);
  std::memcpy(error->sentence, text.data(), length);
  error->sentence[length] = '\0';
}

int Refuse(rdfs_error* error, const rdfs::Status& status) {
  Tell(error, status);
  return -status.errno_value();
}

// As snprintf(3) does.
int Say(const std::string& said, char* text, std::size_t size) {
  if (text == nullptr && size > 0) return -EINVAL;
  if (size > 0) {
    const std::size_t length = std::min(said.size(), size - 1);
    std::memcpy(text, said.data(), length);
    text[length] = '\0';
  }
  return static_cast<int>(said.size());
}

// Hands out what was made.
template <typename Made>
int Give(rdfs::Result<std::unique_ptr<Made>> made, Made** out, rdfs_error* error) {
  if (!made.ok()) return Refuse(error, made.status());
  *out = made->release();
  return 0;
}

}  // namespace

extern "C" {

const char* rdfs_version(void) { return RDFS_VERSION; }

int rdfs_connect(const char* source, const char* options, size_t queue_bytes, rdfs_export** out,
                 rdfs_error* error) {
  if (source == nullptr || out == nullptr) {
    return Refuse(error, {rdfs::Code::kInvalidArgument, "rdfs_connect: a NULL is not a source"});
  }
  return Give(rdfs_export::Connect(source, options, queue_bytes), out, error);
}

int rdfs_disconnect(rdfs_export* export_) {
  if (export_ == nullptr) return 0;
  if (export_->queues.load() != 0) return -EBUSY;
  delete export_;
  return 0;
}

int rdfs_transport(const rdfs_export* export_, char* text, size_t size) {
  return export_ == nullptr ? -EINVAL : Say(export_->mount->info().transport, text, size);
}

int rdfs_queue_open(rdfs_export* export_, rdfs_queue** out, rdfs_error* error) {
  if (export_ == nullptr || out == nullptr) {
    return Refuse(error, {rdfs::Code::kInvalidArgument, "rdfs_queue_open: a NULL is no export"});
  }
  return Give(rdfs_queue::Open(*export_), out, error);
}

void rdfs_queue_close(rdfs_queue* queue) { delete queue; }

rdfs_buffer* rdfs_buffer_alloc(rdfs_queue* queue, size_t bytes) {
  return queue == nullptr ? nullptr : queue->Allocate(bytes);
}
void* rdfs_buffer_data(rdfs_buffer* buffer) { return buffer->memory->bytes().data(); }
size_t rdfs_buffer_size(const rdfs_buffer* buffer) { return buffer->memory->size(); }
void rdfs_buffer_free(rdfs_buffer* buffer) {
  if (buffer != nullptr) buffer->queue.Free(buffer);
}

int rdfs_poll(rdfs_queue* queue, rdfs_completion* completions, int most, int timeout_ms) {
  return queue == nullptr ? -EINVAL : queue->Poll(completions, most, timeout_ms);
}
int rdfs_queue_fd(rdfs_queue* queue) { return queue == nullptr ? -EINVAL : queue->CompletionFd(); }
const char* rdfs_sentence(const rdfs_queue* queue) {
  return queue == nullptr ? "" : queue->sentence();
}

size_t rdfs_listing_count(const rdfs_listing* listing) {
  return listing == nullptr ? 0 : listing->entries.size();
}
const char* rdfs_listing_name(const rdfs_listing* listing, size_t index) {
  return index < rdfs_listing_count(listing) ? listing->entries[index].name.c_str() : nullptr;
}
const rdfs_attributes* rdfs_listing_attributes(const rdfs_listing* listing, size_t index) {
  if (index >= rdfs_listing_count(listing)) return nullptr;
  const rdfs_listing::Entry& entry = listing->entries[index];
  return entry.known ? &entry.attributes : nullptr;
}
void rdfs_listing_free(rdfs_listing* listing) { delete listing; }

int rdfs_pipe_send(const char* hosts, uint16_t port, const char* key, const char* options,
                   rdfs_pipe** out, rdfs_error* error) {
  if (hosts == nullptr || out == nullptr) {
    return Refuse(error, {rdfs::Code::kInvalidArgument, "rdfs_pipe_send: a NULL is no host"});
  }
  auto parsed = rdfs::fs::library::SendOptionsFrom(hosts, port, key, options ? options : "");
  if (!parsed.ok()) return Refuse(error, parsed.status());
  return Give(rdfs_pipe::Send(*std::move(parsed)), out, error);
}

int rdfs_pipe_listen(uint16_t port, const char* key, const char* options, rdfs_pipe** out,
                     rdfs_error* error) {
  if (out == nullptr) return -EINVAL;
  auto parsed = rdfs::fs::library::ReceiveOptionsFrom(port, key, options ? options : "");
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
int rdfs_pipe_finish(rdfs_pipe* pipe) { return pipe == nullptr ? -EINVAL : pipe->Finish(); }
const char* rdfs_pipe_sentence(const rdfs_pipe* pipe) {
  return pipe == nullptr ? "" : pipe->sentence();
}
void rdfs_pipe_close(rdfs_pipe* pipe) { delete pipe; }

}  // extern "C"
