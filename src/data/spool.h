/* A spool: records arrive one after another, and are read at random. It keeps so many bytes of them
 * in memory, and the rest in a file, which has no name any more: when the process ends, in whatever
 * way, nothing is left of it; or it has a name, and another process can adopt its parts then.
 *
 * One task fills and seals it. Any thread reads the records that are readable: those of full
 * blocks, those before the newest flush, and all of them once it is sealed; or, if the spool is in
 * parts, those of the parts that are complete. */
#ifndef PL_DATA_SPOOL_H
#define PL_DATA_SPOOL_H

#include "base/file.h"
#include "base/hash.h"
#include "data/spool_log.h"

#include <stdatomic.h>

struct spool_config {
    size_t record_bytes; /* > 0; of the values of one record */
    size_t block_bytes;  /* written at once; 0: 1 MiB; a block holds at least one record */
    /* Bytes of values that stay in memory, in whole blocks; one block more is being filled. */
    size_t memory;
    struct disk *disk; /* borrowed; NULL: all stays in memory */
    const char *path;  /* of the new file, borrowed until it is sealed */
    bool in_parts;     /* spool_cut ends each part */
    /* (optional, in_parts) The file that is at `path` already, empty; the spool closes it. All
     * records are written to it (spool_log.h) and read from it, and those of `memory` bytes stay in
     * memory, too, once they have been read. When it cannot be written any more, the records that
     * follow are as those of other spools. */
    const struct file_open *keep;
    bool keep_in_memory; /* its pages are memory: none stay there twice */
    uint64_t set;        /* of spool_log.h */
    uint32_t classes;    /* labels of adopted records are below; 0: any */
};

enum { SPOOL_PARTS_MAX = 256, SPOOL_FILES_MAX = 64 };

/* Records that follow those of the part before. It begins with a block of its own. */
struct spool_part {
    size_t end;    /* the number of the first record behind it */
    uint64_t hash; /* its identity, which the filling task gives it */
    size_t block;  /* the number of its first one */
};

struct spool_block {
    _Atomic(uint8_t *) values; /* NULL: they are in the file alone */
    uint32_t *labels;
    const struct file_open *file;
    uint64_t at; /* of the values in it */
};

/* A part that spool_adopt is to take. */
struct spool_wanted {
    uint64_t hash, records;
};

/* Blocks lie in segments, of which each has room for twice as many as the one before, so that none
 * moves while others read. */
enum { SPOOL_SEGMENT = 64, SPOOL_SEGMENTS = 27 };

struct spool {
    struct spool_config config;
    size_t per_block; /* records */
    size_t count;     /* records that are committed; the filling task's */
    size_t begin;     /* of them, those of complete parts */
    struct spool_block *segment[SPOOL_SEGMENTS];
    size_t blocks;             /* full ones, and once it is sealed the last one */
    _Atomic size_t kept_count; /* full blocks in memory */
    struct spool_block block;  /* being filled; values NULL: none yet */
    bool shown;                /* readers have a part of it */
    struct disk_file *out;
    struct file_open in; /* the same file, */
    bool has_file;       /* once it was opened */
    uint64_t written;    /* bytes of it */
    bool logs;           /* it is kept, and can be written */
    bool copies;         /* blocks that are read stay in memory, too */
    struct spool_log log;
    struct err log_failed; /* why it is not kept any more */
    struct file_open adopted[SPOOL_FILES_MAX];
    size_t adopted_count;
    struct hash_stream *hash;
    bool sealed;
    uint64_t hash_value; /* of all values and labels, never 0; once it is sealed */
    _Atomic size_t readable;
    struct spool_part *part; /* room for SPOOL_PARTS_MAX; NULL: it is not in parts */
    _Atomic size_t parts;    /* that are complete */
    atomic_bool ended;       /* no more records become readable */
};

/* ERR_NOMEM; ERR_IO: the file that is to be kept cannot be opened for writing */
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
 * a flush, the block of its last ones stays in memory, unless the file is kept. ERR_USAGE: there
 * are none; ERR_FULL: there are SPOOL_PARTS_MAX parts; ERR_IO, ERR_NOMEM: the spool cannot be
 * continued */
int spool_cut(struct spool *spool, uint64_t hash, struct err *err);

/* Take the parts out of a log that another spool has kept: of `count` wanted ones those that are
 * complete, sound, and not in this spool; adopted[i]: part i is readable now. The spool closes the
 * file in any case. All blocks of these parts are read once. ERR_USAGE: records are in no part
 * yet; ERR_INPUT: the log, or a part, is damaged, or of another set, and was refused as far as
 * that; ERR_IO; ERR_FULL: no further part or file; ERR_NOMEM. Of each error but the first,
 * `adopted` holds. */
int spool_adopt(struct spool *spool, const struct file_open *file,
                const struct spool_wanted *wanted, size_t count, bool *adopted, struct err *err);

/* No record follows. ERR_IO, ERR_NOMEM */
int spool_seal(struct spool *spool, struct err *err);

/* No record follows, and those that are not readable never are. */
void spool_end(struct spool *spool);

/* The complete parts, of which `most` at most are written; 0: it is not in parts. Any thread */
size_t spool_parts(const struct spool *spool, struct spool_part *out, size_t most);

/* Records 0 to this number are readable; *more: others may follow. Any thread */
size_t spool_readable(const struct spool *spool, bool *more);

/* The values of a readable record, and its label. ERR_IO */
int spool_read(struct spool *spool, size_t i, void *values);
uint32_t spool_label(const struct spool *spool, size_t i);

#endif
