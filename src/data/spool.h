/* A spool: records arrive one after another, and are read at random once all are there. It keeps
 * so many bytes of them in memory, and the rest in a file, which has no name any more: when the
 * process ends, in whatever way, nothing is left of it.
 *
 * One task fills and seals it; any thread may then read. */
#ifndef PL_DATA_SPOOL_H
#define PL_DATA_SPOOL_H

#include "base/file.h"
#include "base/hash.h"
#include "world/disk.h"

struct spool_config {
    size_t record_bytes; /* > 0; of the values of one record */
    size_t block_bytes;  /* written at once; 0: 1 MiB; a block holds at least one record */
    /* Bytes of values that stay in memory, in whole blocks; one block more is being filled. */
    size_t memory;
    struct disk *disk; /* borrowed; NULL: all stays in memory */
    const char *path;  /* of the new file, borrowed until it is sealed */
};

struct spool {
    struct spool_config config;
    size_t per_block; /* records */
    size_t count;     /* records that are committed */
    uint32_t *labels; /* `labels_room` of them */
    size_t labels_room;
    uint8_t **kept; /* full blocks in memory, the first ones */
    size_t kept_count, kept_room;
    uint8_t *block; /* being filled; NULL: none yet */
    struct disk_file *out;
    struct file_open in; /* the same file, */
    bool has_file;       /* once it was opened */
    struct hash_stream *hash;
    bool sealed;
    uint64_t hash_value; /* of all values, never 0; once it is sealed */
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

/* No record follows. ERR_IO */
int spool_seal(struct spool *spool, struct err *err);

/* The values of record i (< count) of a sealed spool. ERR_IO */
int spool_read(const struct spool *spool, size_t i, void *values);

#endif
