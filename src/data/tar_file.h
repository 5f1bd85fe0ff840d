/* The file of a TAR archive, read and never trusted. It is a row of members,
 *
 *   header   512 bytes: name, size, type, and the sum of these bytes
 *   body     as many bytes as the size, filled up to a multiple of 512
 *
 * and ends with a block of zeros. Sizes are octal, or base 256 where the first bit is set. A name
 * that is too long for the header is divided (ustar), or it is the body of a member in front of it:
 * the whole of it (GNU, type L), or the line `path` (pax, type x, which also has a line `size`).
 *
 * An archive without its block of zeros is truncated: nobody knows how many members are missing. */
#ifndef PL_DATA_TAR_FILE_H
#define PL_DATA_TAR_FILE_H

#include "base/err.h"
#include "base/file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAR_BLOCK = 512, TAR_HEADER_NAME = 257, TAR_NAME_MAX = 4096, TAR_WINDOW = 1 << 14 };

/* A place in an archive. The caller sets `file` and `path`, both borrowed; the rest is zero. */
struct tar {
    const struct file_open *file;
    const char *path; /* for messages */
    uint64_t at;      /* of the next header */
    bool damaged;     /* the header there is, as the last tar_next has found */
    char name[TAR_NAME_MAX];
    uint64_t begin; /* where `window` begins in the file, */
    size_t filled;  /* and how many bytes it has */
    uint8_t window[TAR_WINDOW];
};

/* A regular file of the archive. Its header is the block in front of its body. */
struct tar_member {
    const char *name; /* valid until the next tar_next; NULL: the archive has ended */
    uint64_t body, size;
};

/* The next regular file; folders, links and other members are left out, bodies are not read.
 * ERR_INPUT: truncated, damaged, not a TAR archive, or a sparse file, which cannot be read */
int tar_next(struct tar *tar, struct tar_member *out, struct err *err);

/* After tar_next has failed because of a damaged header: move to the next one that is not. false:
 * the failure was another, or no header follows. */
bool tar_resume(struct tar *tar);

/* `n` bytes of the file, TAR_WINDOW at most, valid until the next call of a tar_ function.
 * NULL: they cannot be read, and `err` has the message with status ERR_INPUT */
const uint8_t *tar_bytes(struct tar *tar, uint64_t offset, size_t n, struct err *err);

/* The name that a header itself holds: the begin of a long one. */
void tar_header_name(const uint8_t header[TAR_BLOCK], char out[TAR_HEADER_NAME]);

#endif
