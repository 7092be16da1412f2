// rdfs.h: exports, queues, memory, listings.
#include <cerrno>

#include "fs/library/c_answers.h"
#include "fs/library/queue.h"

using rdfs::fs::library::Give;
using rdfs::fs::library::Refuse;
using rdfs::fs::library::Say;

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
  if (export_ == nullptr || !export_->IsOfThisProcess()) return 0;
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

void rdfs_queue_close(rdfs_queue* queue) {
  if (queue != nullptr && queue->owner().IsOfThisProcess()) delete queue;
}

rdfs_buffer* rdfs_buffer_alloc(rdfs_queue* queue, size_t bytes) {
  return queue == nullptr ? nullptr : queue->Allocate(bytes);
}
void* rdfs_buffer_data(rdfs_buffer* buffer) { return buffer->memory->bytes().data(); }
size_t rdfs_buffer_size(const rdfs_buffer* buffer) { return buffer->memory->size(); }
void rdfs_buffer_free(rdfs_buffer* buffer) {
  if (buffer == nullptr || !buffer->queue.owner().IsOfThisProcess()) return;
  buffer->queue.Free(buffer);
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

}  // extern "C"
