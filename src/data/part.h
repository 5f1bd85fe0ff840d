/* A stretch of a file that is held open: a whole file, a record within a database, a picture within
 * a record. */
#ifndef PL_DATA_PART_H
#define PL_DATA_PART_H

#include "base/file.h"

struct part_of {
    const struct file_open *file; /* borrowed */
    uint64_t offset, len;         /* within it */
    struct err *why;              /* receives the message of a read that fails; NULL: none */
};

/* The `n` bytes from `at` on, at + n <= part->len. ERR_IO as file_part, ERR_NOMEM */
static inline int part_read(const struct part_of *part, uint64_t at, void *out, size_t n)
{
    return remote_part(part->file, "", part->offset + at, out, n, ERR_IO, part->why);
}

/* How many bytes of it there are from `at` on, `most` at most. */
static inline size_t part_left(const struct part_of *part, uint64_t at, size_t most)
{
    uint64_t left = at < part->len ? part->len - at : 0;
    return left < most ? (size_t)left : most;
}

#endif
