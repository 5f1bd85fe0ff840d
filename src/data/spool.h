/* A spool: records arrive one after another, and are read at random. It keeps so many bytes of them
 * in memory, and the rest in a file, which has no name any more: when the process ends, in whatever
 * way, nothing is left of it.
 *
 * One task fills and seals it. Any thread reads the records that are readable: those of full
 * blocks, those before the newest flush, and all of them once it is sealed; or, if the spool is in
 * parts, those of the parts that are complete. */
#ifndef PL_DATA_SPOOL_H
#define PL_DATA_SPOOL_H

#include "base/file.h"
#include "base/hash.h"
#include "world/disk.h"

#include <stdatomic.h>

struct spool_config {
    size_t record_bytes; /* > 0; of the values of one record */
    size_t block_bytes;  /* written at once; 0: 1 MiB; a block holds at least one record */
    /* Bytes of values that stay in memory, in whole blocks; one block more is being filled. */
    size_t memory;
    struct disk *disk; /* borrowed; NULL: all stays in memory */
    const char *path;  /* of the new file, borrowed until it is sealed */
    bool in_parts;     /* spool_cut ends each part */
};

enum { SPOOL_PARTS_MAX = 256 };

/* Records that follow those of the part before. */
struct spool_part {
    size_t end;    /* the number of the first record behind it */
    uint64_t hash; /* its identity, which the filling task gives it */
};

struct spool_block {
    uint8_t *values; /* NULL: they are in the file alone */
    uint32_t *labels;
};

/* Blocks lie in segments, of which each has room for twice as many as the one before, so that none
 * moves while others read. */
enum { SPOOL_SEGMENT = 64, SPOOL_SEGMENTS = 27 };

struct spool {
    struct spool_config config;
    size_t per_block; /* records */
    size_t count;     /* records that are committed; the filling task's */
    struct spool_block *segment[SPOOL_SEGMENTS];
    size_t blocks;            /* full ones, and once it is sealed the last one */
    size_t kept_count;        /* full blocks in memory, the first ones */
    struct spool_block block; /* being filled; values NULL: none yet */
    bool shown;               /* readers have a part of it */
    struct disk_file *out;
    struct file_open in; /* the same file, */
    bool has_file;       /* once it was opened */
    struct hash_stream *hash;
    bool sealed;
    uint64_t hash_value; /* of all values and labels, never 0; once it is sealed */
    _Atomic size_t readable;
    struct spool_part *part; /* room for SPOOL_PARTS_MAX; NULL: it is not in parts */
    _Atomic size_t parts;    /* that are complete */
    atomic_bool ended;       /* no more records become readable */
};

/* ERR_NOMEM */
int spool_open(struct spool *spool, const struct spool_config *config, struct err *err);
void spool_close(struct spool *spool); /* also a zeroed one */

/* Memory for the next records: *room of them, at least 1, as far as the block reaches. Valid until
 * the next call. ERR_NOMEM */
int spool_acquire(struct spool *spool, void **values, uint32_t **labels, size_t *room,
                  struct err *err);

/* The first `n` of them are complete. ERR_IO, ERR_FULL, ERR_NOMEM: the spool cannot be
 * continued. */
int spool_commit(struct spool *spool, size_t n, struct err *err);

/* Make all that are committed readable. The block that has the last ones stays in memory, whatever
 * the limit. ERR_NOMEM */
int spool_flush(struct spool *spool, struct err *err);

/* Of a spool in parts: those that are committed since the last part are one, and readable. As with
 * a flush, the block of its last ones stays in memory. ERR_USAGE: there are none; ERR_FULL: there
 * are SPOOL_PARTS_MAX parts; ERR_NOMEM */
int spool_cut(struct spool *spool, uint64_t hash, struct err *err);

/* No record follows. ERR_IO, ERR_NOMEM */
int spool_seal(struct spool *spool, struct err *err);

/* No record follows, and those that are not readable never are. */
void spool_end(struct spool *spool);

/* The complete parts, of which `most` at most are written; 0: it is not in parts. Any thread */
size_t spool_parts(const struct spool *spool, struct spool_part *out, size_t most);

/* Records 0 to this number are readable; *more: others may follow. Any thread */
size_t spool_readable(const struct spool *spool, bool *more);

/* The values of a readable record, and its label. ERR_IO */
int spool_read(const struct spool *spool, size_t i, void *values);
uint32_t spool_label(const struct spool *spool, size_t i);

#endif
