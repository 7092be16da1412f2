/* rdcat: writes a file of an export to standard output, with up to eight reads under way.
 *
 *   cc rdcat.c -o rdcat $(pkg-config --cflags --libs rdfs)
 *   ./rdcat rdfs://node/data key_file=/etc/rdfs/key path/to/file
 *
 * Reads complete in any order; each has a buffer of its own, and they are written in turn.
 */
#include <fcntl.h>
#include <rdfs.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPieces = 8, kPieceBytes = 256 * 1024 };

struct piece {
  rdfs_buffer *buffer;
  uint64_t offset;
  int64_t result; /* of the read; meaningful when it is over */
  int over;
};

static int begin(rdfs_queue *queue, rdfs_file *file, struct piece *piece, uint64_t offset) {
  piece->offset = offset;
  piece->over = 0;
  return rdfs_submit_pread(queue, file, piece->buffer, 0, kPieceBytes, offset, piece);
}

/* Waits until this one is over; others may come before it. */
static int finish(rdfs_queue *queue, struct piece *piece) {
  while (!piece->over) {
    rdfs_completion done[kPieces];
    const int count = rdfs_poll(queue, done, kPieces, -1);
    if (count < 0) return -1;
    for (int i = 0; i < count; ++i) {
      struct piece *ended = done[i].user;
      ended->result = done[i].result;
      ended->over = 1;
      if (done[i].result < 0) fprintf(stderr, "rdcat: %s\n", done[i].sentence);
    }
  }
  return piece->result < 0 ? -1 : 0;
}

static int copy(rdfs_queue *queue, rdfs_file *file) {
  struct piece pieces[kPieces];
  int count = 0; /* as many as there is room for: over RDMA memlock may leave less than eight */
  for (; count < kPieces; ++count) {
    pieces[count].buffer = rdfs_buffer_alloc(queue, kPieceBytes);
    if (pieces[count].buffer == NULL) break;
  }
  if (count == 0) {
    fprintf(stderr, "rdcat: the queue has no room for a buffer\n");
    return -1;
  }
  for (int i = 0; i < count; ++i) {
    if (begin(queue, file, &pieces[i], (uint64_t)i * kPieceBytes) != 0) return -1;
  }
  for (int i = 0;; i = (i + 1) % count) {
    struct piece *piece = &pieces[i];
    if (finish(queue, piece) != 0) return -1;
    const size_t length = (size_t)piece->result;
    if (fwrite(rdfs_buffer_data(piece->buffer), 1, length, stdout) != length) return -1;
    if (length < kPieceBytes) return 0; /* the end; what is under way behind it reads nothing */
    if (begin(queue, file, piece, piece->offset + (uint64_t)count * kPieceBytes) != 0) return -1;
  }
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: rdcat SOURCE OPTIONS PATH\n");
    return 2;
  }
  rdfs_error error;
  rdfs_export *export_ = NULL;
  rdfs_queue *queue = NULL;
  rdfs_file *file = NULL;
  if (rdfs_connect(argv[1], argv[2], 0, &export_, &error) != 0 ||
      rdfs_queue_open(export_, &queue, &error) != 0) {
    fprintf(stderr, "rdcat: %s\n", error.sentence);
    return EXIT_FAILURE;
  }
  int failed = rdfs_open(queue, argv[3], O_RDONLY, 0, &file) != 0;
  if (failed) {
    fprintf(stderr, "rdcat: %s\n", rdfs_sentence(queue));
  } else {
    failed = copy(queue, file) != 0;
    rdfs_close(queue, file);
  }
  rdfs_queue_close(queue);
  rdfs_disconnect(export_);
  return failed || fflush(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
