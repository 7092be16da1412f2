/* librdfs: the files of an rdfs export from a program, without a mount.
 *
 *   export   a session with a server, as `rdfs SOURCE MNT` has one; any thread
 *   queue    a connection of that session with registered memory, in which operations are under way
 *   buffer   a piece of a queue's registered memory: what is read comes into it one-sided
 *   file     an open file; any queue of its export takes it
 *
 * And streams between two programs, which need no export: see Pipes.
 *
 * Every operation but rdfs_readlink, which waits, is there twice: rdfs_submit_X returns at once,
 * and rdfs_poll hands out its completion later, exactly once; rdfs_X waits. Both may be mixed.
 *
 * Errors. Whatever fails returns a negative errno. The sentence that says more, for a person, is in
 * the rdfs_error given to rdfs_connect and rdfs_queue_open, in rdfs_sentence() after a call that
 * waited or was refused, and in the completion.
 *
 * Threads. Any thread may call anything; calls that use one queue take turns, so that threads that
 * want to be fast have a queue each. rdfs_sentence and the sentence of a completion are for
 * programs that use a queue from one thread. What is closed, freed or disconnected must not be in
 * use any more. In a child after a fork nothing of the parent's may be used: rdfs_close,
 * rdfs_queue_close, rdfs_buffer_free, rdfs_disconnect and rdfs_pipe_close do nothing there. A queue
 * has one thread of the library's own, which sleeps while the program works with the queue and
 * otherwise answers the server; an export has one, too. Both block all signals.
 *
 * Time. A call waits for its answer at most as long as the option `deadline` says (30 s),
 * reconnecting included, then fails with -ETIMEDOUT. A read or write whose memory the transport
 * still uses then fails when it does not any more, seconds later at most: a buffer that is handed
 * back is the program's alone. Nothing of an export waits for ever but rdfs_poll, when told to.
 * What a pipe waits for: see Pipes.
 *
 * Paths lead from the root of the export, with or without a '/' in front; "..", and symlinks, as if
 * chroot(2) had made it the root. Each name on the way costs a round trip: keep files open.
 *
 * What is read is what another client has written and closed before this one opened the file; in a
 * file that stays open, changes of others may be up to 5 s late, as on a mount.
 */
#ifndef RDFS_H
#define RDFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(__GNUC__)
#define RDFS_PUBLIC __attribute__((visibility("default")))
#else
#define RDFS_PUBLIC
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rdfs_export rdfs_export;
typedef struct rdfs_queue rdfs_queue;
typedef struct rdfs_buffer rdfs_buffer;
typedef struct rdfs_file rdfs_file;
typedef struct rdfs_listing rdfs_listing;
typedef struct rdfs_pipe rdfs_pipe;

typedef struct rdfs_error {
  int number;         /* an errno */
  char sentence[508]; /* what is wrong and what to do, cut off where it is longer */
} rdfs_error;

typedef struct rdfs_attributes {
  uint64_t ino, size, blocks; /* blocks of 512 bytes */
  int64_t atime, mtime, ctime, btime;
  uint32_t atime_ns, mtime_ns, ctime_ns, btime_ns;
  uint32_t mode, nlink, uid, gid; /* mode with the type, as stat(2) has it */
  uint64_t change;                /* differs whenever content or attributes may have changed */
} rdfs_attributes;

/* The largest rdfs_submit_pread and rdfs_submit_pwrite. rdfs_pread and rdfs_pwrite take any length.
 */
#define RDFS_MAX_TRANSFER 1048576
/* So many operations may be under way in one queue; more are refused with -EAGAIN, but closing. */
#define RDFS_MAX_UNDER_WAY 4096

RDFS_PUBLIC const char* rdfs_version(void);

/* ---- Exports --------------------------------------------------------------------------------- */

/* `source` and `options` as for `rdfs SOURCE MNT -o OPTIONS` (rdfs(1)); options may be NULL. Those
 * that count here: key_file, require, address, deadline, ro, plaintext, require_encryption, idmap,
 * uid, gid, ssh_command, rdfsd_path. The kernel's (allow_other, nosuid ...) are taken and mean
 * nothing. `queue_bytes`: how much registered memory each queue has; 0: 16 MiB, or over RDMA what
 * memlock leaves (of 8 MiB 2). A quarter of it, at most 256 KiB, is the library's own for calls
 * that wait; rdfs_buffer_alloc gives the rest. Blocks until the session is there, at most for the
 * deadline. `error` may be NULL. */
RDFS_PUBLIC int rdfs_connect(const char* source, const char* options, size_t queue_bytes,
                             rdfs_export** out, rdfs_error* error);
/* Ends the session. -EBUSY while one of its queues is open. Files that are open become invalid. */
RDFS_PUBLIC int rdfs_disconnect(rdfs_export* export_);
/* What the session goes over and why not over something better, into `text` as snprintf(3) does. */
RDFS_PUBLIC int rdfs_transport(const rdfs_export* export_, char* text, size_t size);

/* ---- Queues and memory ----------------------------------------------------------------------- */

/* At most 32 an export. Blocks as rdfs_connect. */
RDFS_PUBLIC int rdfs_queue_open(rdfs_export* export_, rdfs_queue** out, rdfs_error* error);
/* Frees its buffers. Operations under way are waited for, at most for the deadline; completions
 * that nobody took are lost, and what they carry is closed. With the last queue the session ends,
 * and every open file with it. */
RDFS_PUBLIC void rdfs_queue_close(rdfs_queue* queue);

/* NULL where the queue has no such room left. Aligned to pages of 4 KiB, and as large as whole
 * ones. */
RDFS_PUBLIC rdfs_buffer* rdfs_buffer_alloc(rdfs_queue* queue, size_t bytes);
RDFS_PUBLIC void* rdfs_buffer_data(rdfs_buffer* buffer);
RDFS_PUBLIC size_t rdfs_buffer_size(const rdfs_buffer* buffer);
/* Operations that use it keep the memory until they are over. NULL is ignored. */
RDFS_PUBLIC void rdfs_buffer_free(rdfs_buffer* buffer);

typedef struct rdfs_completion {
  void* user;            /* as given to rdfs_submit_X */
  int64_t result;        /* a negative errno, or 0; for pread and pwrite how many bytes */
  rdfs_file* file;       /* of rdfs_submit_open: yours to close */
  rdfs_listing* listing; /* of rdfs_submit_list: yours to free */
  const char* sentence; /* when it failed, else NULL; valid until the next rdfs_poll of the queue */
} rdfs_completion;

/* Takes up to `most` completions, in the order in which they came. Waits for the first one at most
 * `timeout_ms` (0: not at all, -1: for ever). Returns how many, or -EINVAL. */
RDFS_PUBLIC int rdfs_poll(rdfs_queue* queue, rdfs_completion* completions, int most,
                          int timeout_ms);
/* A descriptor for poll(2) and its like: readable while rdfs_poll has something. The queue's; the
 * same for its life. From the first call on the library's thread does the waiting, so that a
 * completion costs a change of threads; who wants it sooner waits in rdfs_poll. */
RDFS_PUBLIC int rdfs_queue_fd(rdfs_queue* queue);
/* The sentence of the last call on this queue that failed, until the next one fails. Never NULL. */
RDFS_PUBLIC const char* rdfs_sentence(const rdfs_queue* queue);

/* ---- Operations that return at once ---------------------------------------------------------- */
/* 0, or a negative errno when it was not begun (-EINVAL, -EAGAIN): then there is no completion.
 * Paths are copied; what results are written to stays yours, and has to last until the completion.
 */

/* `flags` as for open(2); `mode` as it is, no umask is taken off. O_DIRECTORY: -EINVAL. */
RDFS_PUBLIC int rdfs_submit_open(rdfs_queue* queue, const char* path, int flags, uint32_t mode,
                                 void* user);
/* The file is gone with the call, also where the completion says that something written is lost. */
RDFS_PUBLIC int rdfs_submit_close(rdfs_queue* queue, rdfs_file* file, void* user);
/* Reads into the buffer (of this queue) from its byte `at` on. Short only at the end of the file.
 */
RDFS_PUBLIC int rdfs_submit_pread(rdfs_queue* queue, rdfs_file* file, rdfs_buffer* buffer,
                                  size_t at, size_t length, uint64_t offset, void* user);
/* Writes from the buffer. Short only where there is no space. With O_APPEND `offset` says nothing.
 */
RDFS_PUBLIC int rdfs_submit_pwrite(rdfs_queue* queue, rdfs_file* file, rdfs_buffer* buffer,
                                   size_t at, size_t length, uint64_t offset, void* user);
RDFS_PUBLIC int rdfs_submit_fsync(rdfs_queue* queue, rdfs_file* file, int data_only, void* user);
RDFS_PUBLIC int rdfs_submit_truncate(rdfs_queue* queue, rdfs_file* file, uint64_t size, void* user);
RDFS_PUBLIC int rdfs_submit_fstat(rdfs_queue* queue, rdfs_file* file, rdfs_attributes* out,
                                  void* user);
/* `flags`: 0, or AT_SYMLINK_NOFOLLOW. */
RDFS_PUBLIC int rdfs_submit_stat(rdfs_queue* queue, const char* path, int flags,
                                 rdfs_attributes* out, void* user);
/* All of a directory, without "." and "..", in the server's order. */
RDFS_PUBLIC int rdfs_submit_list(rdfs_queue* queue, const char* path, void* user);
/* `mode` as it is, no umask is taken off. */
RDFS_PUBLIC int rdfs_submit_mkdir(rdfs_queue* queue, const char* path, uint32_t mode, void* user);
RDFS_PUBLIC int rdfs_submit_rmdir(rdfs_queue* queue, const char* path, void* user);
RDFS_PUBLIC int rdfs_submit_unlink(rdfs_queue* queue, const char* path, void* user);
/* `flags` as for renameat2(2): 0, RENAME_NOREPLACE or RENAME_EXCHANGE. */
RDFS_PUBLIC int rdfs_submit_rename(rdfs_queue* queue, const char* from, const char* to,
                                   unsigned flags, void* user);
RDFS_PUBLIC int rdfs_submit_symlink(rdfs_queue* queue, const char* target, const char* path,
                                    void* user);

/* ---- The same, waited for -------------------------------------------------------------------- */

RDFS_PUBLIC int rdfs_open(rdfs_queue* queue, const char* path, int flags, uint32_t mode,
                          rdfs_file** out);
RDFS_PUBLIC int rdfs_close(rdfs_queue* queue, rdfs_file* file);
/* From and into any memory, any length: by way of the queue's own, copied once. */
RDFS_PUBLIC ssize_t rdfs_pread(rdfs_queue* queue, rdfs_file* file, void* to, size_t length,
                               uint64_t offset);
RDFS_PUBLIC ssize_t rdfs_pwrite(rdfs_queue* queue, rdfs_file* file, const void* from, size_t length,
                                uint64_t offset);
RDFS_PUBLIC int rdfs_fsync(rdfs_queue* queue, rdfs_file* file, int data_only);
RDFS_PUBLIC int rdfs_truncate(rdfs_queue* queue, rdfs_file* file, uint64_t size);
RDFS_PUBLIC int rdfs_fstat(rdfs_queue* queue, rdfs_file* file, rdfs_attributes* out);
RDFS_PUBLIC int rdfs_stat(rdfs_queue* queue, const char* path, int flags, rdfs_attributes* out);
RDFS_PUBLIC int rdfs_list(rdfs_queue* queue, const char* path, rdfs_listing** out);
RDFS_PUBLIC int rdfs_mkdir(rdfs_queue* queue, const char* path, uint32_t mode);
RDFS_PUBLIC int rdfs_rmdir(rdfs_queue* queue, const char* path);
RDFS_PUBLIC int rdfs_unlink(rdfs_queue* queue, const char* path);
RDFS_PUBLIC int rdfs_rename(rdfs_queue* queue, const char* from, const char* to, unsigned flags);
RDFS_PUBLIC int rdfs_symlink(rdfs_queue* queue, const char* target, const char* path);
/* As readlink(2): how many bytes of the target are in `text`, without a NUL. */
RDFS_PUBLIC ssize_t rdfs_readlink(rdfs_queue* queue, const char* path, char* text, size_t size);

/* ---- What rdfs_list gives -------------------------------------------------------------------- */

RDFS_PUBLIC size_t rdfs_listing_count(const rdfs_listing* listing);
/* Of the entry `index`, below the count; valid as long as the listing. Any bytes but '/' and NUL.
 */
RDFS_PUBLIC const char* rdfs_listing_name(const rdfs_listing* listing, size_t index);
/* What the entry is, symlinks as themselves. NULL where it went while it was listed. */
RDFS_PUBLIC const rdfs_attributes* rdfs_listing_attributes(const rdfs_listing* listing,
                                                           size_t index);
RDFS_PUBLIC void rdfs_listing_free(rdfs_listing* listing);

/* ---- Pipes ----------------------------------------------------------------------------------- */
/* A stream of bytes from one program to another, which may as well be rdsend(1) or rdrecv(1): over
 * RDMA, shared memory or TCP, with a checksum over all of it. A pipe is one end.
 *
 *   rdfs_pipe_send                      rdfs_pipe_listen
 *   rdfs_pipe_write, again and again    rdfs_pipe_read, until it returns 0
 *   rdfs_pipe_finish                    rdfs_pipe_close
 *   rdfs_pipe_close
 *
 * `key`: any text of up to 1024 bytes, the same at both ends, which never travels; NULL with the
 * option key_file. `options`, which may be NULL: words with commas between them, of which both ends
 * know key_file=FILE (its first line; mode 0600), require=verbs|shm|tcp, encrypt (every byte, also
 * over RDMA), timeout=SECONDS (after which a silent peer is given up; 60, 0: never) and
 * wait=SECONDS (for the other end to come).
 *
 * A read waits for what is sent, and a write and rdfs_pipe_finish for who reads, as long as the
 * other end is alive.
 *
 * Any thread may call; those that write, or read, take turns. An end has a thread of the library's
 * own, which blocks all signals. It must not be used after a fork in the child, but to close it. */

/* To whoever listens at `hosts` (HOST, or several with commas between them, HOST or HOST:PORT: each
 * but the last one an rdrecv, which passes it on), at most for `wait` (10 s) while nobody does.
 * More options: plaintext (no TLS over TCP to another host), compress, or compress=1 to 19 (zstd).
 */
RDFS_PUBLIC int rdfs_pipe_send(const char* hosts, uint16_t port, const char* key,
                               const char* options, rdfs_pipe** out, rdfs_error* error);
/* Listens and returns; the first read waits for the sender, for ever without the option wait. One
 * sender, and nobody behind it. `port` 0: any, see rdfs_pipe_port. More options: listen=ADDRESS
 * (all), verbs_port=N (port + 1). */
RDFS_PUBLIC int rdfs_pipe_listen(uint16_t port, const char* key, const char* options,
                                 rdfs_pipe** out, rdfs_error* error);
/* Where it listens; of a sender -EINVAL. */
RDFS_PUBLIC int rdfs_pipe_port(const rdfs_pipe* pipe);
/* What it goes over, and why, as snprintf(3) does; nothing while no sender has come. */
RDFS_PUBLIC int rdfs_pipe_transport(const rdfs_pipe* pipe, char* text, size_t size);
/* All of it, or a negative errno. Returns when it is copied, once, to where it leaves from: large
 * pieces (a megabyte) are fast. */
RDFS_PUBLIC ssize_t rdfs_pipe_write(rdfs_pipe* pipe, const void* from, size_t length);
/* As many as are there, at least one; 0: the stream is whole, its length and checksum are right,
 * and the sender will be told so. Anything that is cut off is an error instead. */
RDFS_PUBLIC ssize_t rdfs_pipe_read(rdfs_pipe* pipe, void* to, size_t length);
/* The same, and -EAGAIN where nothing has come within `timeout_ms` (-1: it waits for ever), counted
 * from when no other thread reads. */
RDFS_PUBLIC ssize_t rdfs_pipe_read_within(rdfs_pipe* pipe, void* to, size_t length, int timeout_ms);
/* Of a sender: that was all. Waits until every receiver has confirmed it. A receiver, which has
 * read 0, need not call it: it waits until the sender has been told. */
RDFS_PUBLIC int rdfs_pipe_finish(rdfs_pipe* pipe);
/* Of the last call of this pipe that failed, valid until this thread asks again. Never NULL. */
RDFS_PUBLIC const char* rdfs_pipe_sentence(const rdfs_pipe* pipe);
/* What is not finished, or not read to its end, has broken off, and the other end is told so. NULL
 * is ignored. */
RDFS_PUBLIC void rdfs_pipe_close(rdfs_pipe* pipe);

#ifdef __cplusplus
}
#endif

#endif
