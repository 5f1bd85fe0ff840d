/* The log of a spool: a file in which another process finds the parts that were complete when the
 * writer ended, in whatever way. It is a row of frames, each a head with a checksum of its own and,
 * of a block, the values of its records and their labels behind it. A frame that ends a part
 * follows the part's blocks; blocks that none follows are no part. Numbers are the machine's. */
#ifndef PL_DATA_SPOOL_LOG_H
#define PL_DATA_SPOOL_LOG_H

#include "base/file.h"
#include "world/disk.h"

/* How far a log is written. The caller sets the first two fields. */
struct spool_log {
    uint64_t set;        /* identity of what the parts belong to, and of the form of records */
    size_t record_bytes; /* of the values */
    uint64_t len;        /* bytes, of whole frames */
    uint64_t blocks, records, content; /* of the part that has no end yet */
};

/* Append a block of n records; *at: where its values are. After an error the file has to be cut
 * back to `len`. ERR_IO, ERR_FULL */
int spool_log_add(struct spool_log *log, const struct disk *disk, struct disk_file *out,
                  const void *values, const uint32_t *labels, size_t n, uint64_t *at,
                  struct err *err);

/* The blocks since the last end are the part of this identity. Errors as above */
int spool_log_end(struct spool_log *log, const struct disk *disk, struct disk_file *out,
                  uint64_t hash, struct err *err);

struct spool_log_block {
    uint64_t at; /* of the values in the file */
    size_t records;
    uint64_t hash; /* of values and labels */
};

/* A part as its frames state it. */
struct spool_log_part {
    uint64_t hash, records;
    size_t blocks; /* 0: there is none any more */
    struct spool_log_block *block;
};

/* Reads the frames; the caller sets the first four fields, and all others are 0. */
struct spool_log_reader {
    const struct file_open *file; /* borrowed */
    uint64_t set;
    size_t record_bytes;
    size_t per_block; /* records of all blocks of a part but its last */
    uint64_t at;
    struct spool_log_block *block; /* of the part */
    size_t room;
};

/* The next part, valid until the next call; its records are not read. A log that ends within a
 * frame or a part is not damaged: its writer was killed. ERR_INPUT: a head is damaged, so that no
 * further part is found, or is of another set; ERR_IO, ERR_NOMEM */
int spool_log_next(struct spool_log_reader *reader, struct spool_log_part *part, struct err *err);
void spool_log_close(struct spool_log_reader *reader);

/* Read the records of a block. ERR_INPUT: they are not those that were written; ERR_IO */
int spool_log_read(const struct spool_log_reader *reader, const struct spool_log_block *block,
                   void *values, uint32_t *labels, struct err *err);

#endif
