#include "data/spool_log.h"

#include "base/array.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MAGIC_BLOCK = 0x31424c50, MAGIC_END = 0x31454c50 }; /* "PLB1", "PLE1" */

/* All bytes of it are the fields'. */
struct head {
    uint64_t magic, set;
    uint64_t number;  /* of the block in its part; of an end: the part's blocks */
    uint64_t records; /* of the block, or of the part */
    uint64_t hash;    /* of the block's contents; of an end: the part's identity */
    uint64_t content; /* of an end: of all its blocks */
    uint64_t sum;     /* of the fields above */
};

static uint64_t sum_of(const struct head *head)
{
    return hash_bytes(head, offsetof(struct head, sum));
}

static uint64_t hash_records(const void *values, size_t bytes, const uint32_t *labels, size_t n)
{
    return hash_mix(hash_bytes(values, bytes), hash_bytes(labels, n * sizeof *labels));
}

/* ---- writing ---- */

static int write_head(const struct disk *disk, struct disk_file *out, struct head *head,
                      struct err *err)
{
    head->sum = sum_of(head);
    return disk->ops->write(out, head, sizeof *head, err);
}

int spool_log_add(struct spool_log *log, const struct disk *disk, struct disk_file *out,
                  const void *values, const uint32_t *labels, size_t n, uint64_t *at,
                  struct err *err)
{
    size_t bytes = n * log->record_bytes;
    struct head head = {.magic = MAGIC_BLOCK,
                        .set = log->set,
                        .number = log->blocks,
                        .records = n,
                        .hash = hash_records(values, bytes, labels, n)};
    int rc = write_head(disk, out, &head, err);
    if (rc == OK)
        rc = disk->ops->write(out, values, bytes, err);
    if (rc == OK)
        rc = disk->ops->write(out, labels, n * sizeof *labels, err);
    if (rc != OK)
        return rc;
    *at = log->len + sizeof head;
    log->len += sizeof head + bytes + n * sizeof *labels;
    log->blocks++;
    log->records += n;
    log->content = hash_mix(log->content, head.hash);
    return OK;
}

int spool_log_end(struct spool_log *log, const struct disk *disk, struct disk_file *out,
                  uint64_t hash, struct err *err)
{
    struct head head = {.magic = MAGIC_END,
                        .set = log->set,
                        .number = log->blocks,
                        .records = log->records,
                        .hash = hash,
                        .content = log->content};
    int rc = write_head(disk, out, &head, err);
    if (rc != OK)
        return rc;
    log->len += sizeof head;
    log->blocks = log->records = log->content = 0;
    return OK;
}

/* ---- reading ---- */

static int fail_damaged(const struct spool_log_reader *reader, struct err *err)
{
    return err_set(err, ERR_INPUT, "the log of records is damaged at byte %" PRIu64, reader->at);
}

/* *whole: all of the frame is in the file. */
static int read_head(const struct spool_log_reader *reader, struct head *head, bool *whole,
                     struct err *err)
{
    uint64_t left = reader->file->len - reader->at, each = reader->record_bytes + 4;
    *whole = left >= sizeof *head;
    if (!*whole)
        return OK;
    if (file_part(reader->file, reader->at, head, sizeof *head) != OK)
        return err_set(err, ERR_IO, "the log of records cannot be read at byte %" PRIu64,
                       reader->at);
    if ((head->magic != MAGIC_BLOCK && head->magic != MAGIC_END) || head->sum != sum_of(head))
        return fail_damaged(reader, err);
    if (head->set != reader->set)
        return err_set(err, ERR_INPUT, "the log of records is that of another set of records");
    if (head->magic == MAGIC_BLOCK) {
        if (head->records == 0 || head->records > reader->per_block)
            return fail_damaged(reader, err);
        *whole = left - sizeof *head >= head->records * each;
    }
    return OK;
}

int spool_log_next(struct spool_log_reader *reader, struct spool_log_part *part, struct err *err)
{
    uint64_t content = 0, records = 0;
    size_t blocks = 0;
    *part = (struct spool_log_part){0};
    for (;;) {
        struct head head;
        bool whole;
        int rc = read_head(reader, &head, &whole, err);
        if (rc != OK || !whole)
            return rc;
        bool ends = head.magic == MAGIC_END;
        bool follows = head.number == blocks && records == blocks * (uint64_t)reader->per_block;
        if (ends ? blocks == 0 || head.number != blocks || head.records != records ||
                       head.content != content
                 : !follows)
            return fail_damaged(reader, err);
        reader->at += sizeof head;
        if (ends) {
            *part = (struct spool_log_part){head.hash, records, blocks, reader->block};
            return OK;
        }
        if (!array_grow(&reader->block, blocks, &reader->room, sizeof *reader->block))
            return err_set(err, ERR_NOMEM, "out of memory for a log of records");
        reader->block[blocks++] =
            (struct spool_log_block){reader->at, (size_t)head.records, head.hash};
        reader->at += head.records * (reader->record_bytes + sizeof(uint32_t));
        records += head.records;
        content = hash_mix(content, head.hash);
    }
}

void spool_log_close(struct spool_log_reader *reader)
{
    free(reader->block);
    *reader = (struct spool_log_reader){0};
}

int spool_log_read(const struct spool_log_reader *reader, const struct spool_log_block *block,
                   void *values, uint32_t *labels, struct err *err)
{
    size_t bytes = block->records * reader->record_bytes;
    int rc = file_part(reader->file, block->at, values, bytes);
    if (rc == OK)
        rc = file_part(reader->file, block->at + bytes, labels, block->records * sizeof *labels);
    if (rc != OK)
        return err_set(err, ERR_IO, "the log of records cannot be read at byte %" PRIu64,
                       block->at);
    if (hash_records(values, bytes, labels, block->records) != block->hash)
        return err_set(err, ERR_INPUT, "the log of records is damaged behind byte %" PRIu64,
                       block->at);
    return OK;
}
