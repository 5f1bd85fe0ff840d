#include "data/spool.h"

#include "base/fault.h"
#include "data/spool_inner.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

/* Records are written to the file that is to be kept. */
static void keep_file(struct spool *spool)
{
    spool->in = *spool->config.keep;
    spool->in.len = UINT64_MAX; /* it grows; readable records are in it */
    spool->config.keep = NULL;
    spool->has_file = spool->logs = true;
    spool->copies = !spool->config.keep_in_memory;
}

int spool_open(struct spool *spool, const struct spool_config *config, struct err *err)
{
    PL_ASSERT(config->record_bytes > 0);
    size_t block = config->block_bytes ? config->block_bytes : BLOCK_BYTES;
    *spool = (struct spool){.config = *config, .log = {config->set, config->record_bytes}};
    spool->per_block = block > config->record_bytes ? block / config->record_bytes : 1;
    PL_ASSERT(!config->keep || (config->in_parts && config->disk));
    if (config->keep)
        keep_file(spool);
    spool->hash = hash_stream_create();
    if (!spool->hash)
        return err_set(err, ERR_NOMEM, "out of memory for a stream of records");
    hash_stream_begin(spool->hash);
    if (config->in_parts)
        spool->part = calloc(SPOOL_PARTS_MAX, sizeof *spool->part);
    if (config->in_parts && !spool->part)
        return err_set(err, ERR_NOMEM, "out of memory for the parts of a stream of records");
    return !config->keep
               ? OK
               : config->disk->ops->open(config->disk, config->path, true, &spool->out, err);
}

static void free_block(struct spool_block *block)
{
    free(atomic_load(&block->values));
    free(block->labels);
}

/* Segment s has the blocks from SPOOL_SEGMENT * (2^s - 1) on. */
struct spool_block *spool_block_at(const struct spool *spool, size_t number, unsigned *segment)
{
    size_t from = number / SPOOL_SEGMENT + 1;
    unsigned s = 0;
    while (from >> (s + 1))
        s++;
    if (segment)
        *segment = s;
    PL_ASSERT(s < SPOOL_SEGMENTS);
    struct spool_block *blocks = spool->segment[s];
    return blocks ? &blocks[number - SPOOL_SEGMENT * (((size_t)1 << s) - 1)] : NULL;
}

void spool_close(struct spool *spool)
{
    if (spool->out)
        spool->config.disk->ops->close(spool->out, NULL);
    if (spool->has_file)
        file_close(&spool->in);
    for (size_t i = 0; i < spool->adopted_count; i++)
        file_close(&spool->adopted[i]);
    for (size_t i = 0; i < spool->blocks; i++)
        free_block(spool_block_at(spool, i, NULL));
    free_block(&spool->block);
    for (size_t s = 0; s < SPOOL_SEGMENTS; s++)
        free(spool->segment[s]);
    free(spool->part);
    hash_stream_free(spool->hash);
    *spool = (struct spool){0};
}

size_t spool_block_bytes(const struct spool *spool)
{
    return spool->per_block * spool->config.record_bytes;
}

/* Records of the block that is being filled. */
static size_t filled_of(const struct spool *spool)
{
    return (spool->count - spool->begin) % spool->per_block;
}

/* ---- filling ---- */

int spool_acquire(struct spool *spool, void **values, uint32_t **labels, size_t *room,
                  struct err *err)
{
    PL_ASSERT(!spool->sealed);
    struct spool_block *block = &spool->block;
    size_t filled = filled_of(spool);
    *room = spool->per_block - filled;
    if (!block->values)
        block->values = malloc(spool_block_bytes(spool));
    if (!block->labels)
        block->labels = calloc(spool->per_block, sizeof *block->labels);
    if (!block->values || !block->labels)
        return err_set(err, ERR_NOMEM, "out of memory for record %zu of a stream", spool->count);
    *values = block->values + filled * spool->config.record_bytes;
    *labels = block->labels + filled;
    return OK;
}

/* Make the file, and take its name away at once. */
static int open_file(struct spool *spool, struct err *err)
{
    const struct spool_config *config = &spool->config;
    const struct disk_ops *ops = config->disk->ops;
    int rc = ops->open(config->disk, config->path, false, &spool->out, err);
    if (rc != OK)
        return rc;
    rc = file_open(config->path, &spool->in, err);
    spool->has_file = rc == OK;
    spool->in.len = UINT64_MAX; /* it grows; readable records are in it */
    int removed = ops->remove(config->disk, config->path, rc == OK ? err : NULL);
    return rc == OK ? removed : rc;
}

/* *at: where it is in the file. */
static int write_block(struct spool *spool, uint64_t *at, struct err *err)
{
    const struct spool_config *config = &spool->config;
    int rc = spool->out ? OK : open_file(spool, err);
    if (rc == OK)
        rc = config->disk->ops->write(spool->out, spool->block.values, spool_block_bytes(spool),
                                      err);
    *at = spool->written;
    spool->written += spool_block_bytes(spool);
    return rc;
}

/* The frame that was being written to the log is not in it, and none follows. ERR_IO: nor can
 * anything be written to its file. */
static int end_log(struct spool *spool, struct err *err)
{
    spool->logs = false;
    spool->written = spool->log.len;
    return spool->config.disk->ops->truncate(spool->out, spool->log.len, err);
}

/* Records [0, n) of the block. */
static int log_block(struct spool *spool, size_t n, uint64_t *at, struct err *err)
{
    int rc = spool_log_add(&spool->log, spool->config.disk, spool->out, spool->block.values,
                           spool->block.labels, n, at, &spool->log_failed);
    return rc == OK ? OK : end_log(spool, err);
}

/* Records [0, n) of the block. The hash is the same however they were committed. */
static void hash_block(struct spool *spool, size_t n)
{
    hash_stream_add(spool->hash, spool->block.values, n * spool->config.record_bytes);
    hash_stream_add(spool->hash, spool->block.labels, n * sizeof *spool->block.labels);
}

struct spool_block *spool_block_place(struct spool *spool, size_t number)
{
    unsigned s;
    if (!spool_block_at(spool, number, &s))
        spool->segment[s] = calloc((size_t)SPOOL_SEGMENT << s, sizeof *spool->segment[s]);
    return spool_block_at(spool, number, NULL);
}

/* Readers find the block that is being filled. Its values stay in memory, or are in the file.
 * Nothing if they have found it already. */
static int show_block(struct spool *spool, bool keeps, uint64_t at, struct err *err)
{
    if (spool->shown)
        return OK;
    struct spool_block *to = spool_block_place(spool, spool->blocks);
    if (!to)
        return err_set(err, ERR_NOMEM, "out of memory for record %zu of a stream", spool->count);
    to->values = keeps ? atomic_load(&spool->block.values) : NULL;
    to->labels = spool->block.labels;
    to->file = &spool->in;
    to->at = at;
    return OK;
}

/* The block is complete. */
static int add_block(struct spool *spool, bool keeps, uint64_t at, struct err *err)
{
    int rc = show_block(spool, keeps, at, err);
    if (rc != OK)
        return rc;
    if (keeps || spool->shown) /* readers have the values */
        spool->block.values = NULL;
    spool->block.labels = NULL;
    spool->shown = false;
    spool->blocks++;
    return OK;
}

/* One more full block stays in memory, if there is room for it. Any thread */
static bool take_room(struct spool *spool)
{
    size_t used = atomic_load(&spool->kept_count);
    size_t most = spool->config.disk ? spool->config.memory / spool_block_bytes(spool) : SIZE_MAX;
    while (used < most)
        if (atomic_compare_exchange_weak(&spool->kept_count, &used, used + 1))
            return true;
    return false;
}

/* The block has n records and gets no more. One that is not full stays in memory, and does not
 * count, unless it is in the log. */
static int end_block(struct spool *spool, size_t n, struct err *err)
{
    uint64_t at = 0;
    int rc = spool->logs ? log_block(spool, n, &at, err) : OK;
    if (rc != OK)
        return rc;
    bool keeps = !spool->logs && (n < spool->per_block || take_room(spool));
    if (!spool->part)
        hash_block(spool, n);
    if (!spool->logs && !keeps)
        rc = write_block(spool, &at, err);
    return rc == OK ? add_block(spool, keeps, at, err) : rc;
}

int spool_commit(struct spool *spool, size_t n, struct err *err)
{
    size_t filled = filled_of(spool);
    PL_ASSERT(!spool->sealed && spool->block.values && n <= spool->per_block - filled);
    spool->count += n;
    if (filled + n < spool->per_block)
        return OK;
    int rc = end_block(spool, spool->per_block, err);
    if (rc == OK && !spool->part)
        atomic_store(&spool->readable, spool->count);
    return rc;
}

int spool_flush(struct spool *spool, struct err *err)
{
    PL_ASSERT(!spool->sealed && !spool->part);
    bool begun = filled_of(spool) > 0;
    int rc = begun ? show_block(spool, true, 0, err) : OK;
    if (rc != OK)
        return rc;
    spool->shown = begun;
    atomic_store(&spool->readable, spool->count);
    return OK;
}

void spool_add_part(struct spool *spool, size_t end, uint64_t hash, size_t block)
{
    size_t n = atomic_load(&spool->parts);
    spool->part[n] = (struct spool_part){end, hash, block};
    spool->begin = spool->count = end;
    atomic_store(&spool->parts, n + 1); /* first: what is readable is in a part */
    atomic_store(&spool->readable, end);
}

int spool_fail_full(struct err *err)
{
    return err_set(err, ERR_FULL, "a stream has at most %d parts", SPOOL_PARTS_MAX);
}

int spool_cut(struct spool *spool, uint64_t hash, struct err *err)
{
    PL_ASSERT(!spool->sealed && spool->part);
    if (spool->count == spool->begin)
        return err_set(err, ERR_USAGE, "a part of a stream needs a record");
    if (atomic_load(&spool->parts) == SPOOL_PARTS_MAX)
        return spool_fail_full(err);
    size_t filled = filled_of(spool), records = spool->count - spool->begin;
    int rc = filled > 0 ? end_block(spool, filled, err) : OK;
    if (rc == OK && spool->logs &&
        spool_log_end(&spool->log, spool->config.disk, spool->out, hash, &spool->log_failed) != OK)
        rc = end_log(spool, err);
    if (rc != OK)
        return rc;
    size_t blocks = (records + spool->per_block - 1) / spool->per_block;
    spool_add_part(spool, spool->count, hash, spool->blocks - blocks);
    return OK;
}

int spool_seal(struct spool *spool, struct err *err)
{
    PL_ASSERT(!spool->sealed);
    size_t left = filled_of(spool);
    spool->sealed = true;
    if (left > 0)
        hash_block(spool, left);
    spool->hash_value = hash_stream_take(spool->hash);
    spool->hash_value += spool->hash_value == 0;
    int rc = left > 0 ? add_block(spool, true, 0, err) : OK;
    if (spool->out) {
        int closed = spool->config.disk->ops->close(spool->out, rc == OK ? err : NULL);
        rc = rc == OK ? closed : rc;
    }
    spool->out = NULL;
    if (rc == OK)
        atomic_store(&spool->readable, spool->count);
    atomic_store(&spool->ended, true);
    return rc;
}

void spool_end(struct spool *spool)
{
    atomic_store(&spool->ended, true);
}

/* ---- reading ---- */

size_t spool_parts(const struct spool *spool, struct spool_part *out, size_t most)
{
    size_t n = atomic_load(&spool->parts);
    for (size_t i = 0; i < n && i < most; i++)
        out[i] = spool->part[i];
    return n;
}

size_t spool_readable(const struct spool *spool, bool *more)
{
    *more = !atomic_load(&spool->ended); /* first: nothing follows what is then readable */
    return atomic_load(&spool->readable);
}

/* Where a record is: record `at` of the `records` of a block. */
struct record_place {
    struct spool_block *block;
    size_t at, records;
};

static struct record_place locate_record(const struct spool *spool, size_t i)
{
    PL_ASSERT(i < atomic_load(&spool->readable));
    struct spool_part part = {.end = SIZE_MAX};
    size_t begin = 0, low = 0, high = atomic_load(&spool->parts);
    if (spool->part) {
        while (low + 1 < high) { /* part `low` or a later one has it, and none from `high` on */
            size_t middle = (low + high) / 2;
            if (spool->part[middle - 1].end <= i)
                low = middle;
            else
                high = middle;
        }
        part = spool->part[low];
        begin = low > 0 ? spool->part[low - 1].end : 0;
    }
    size_t number = (i - begin) / spool->per_block, first = begin + number * spool->per_block;
    size_t left = part.end - first;
    return (struct record_place){spool_block_at(spool, part.block + number, NULL), i - first,
                                 left < spool->per_block ? left : spool->per_block};
}

/* The values of a block that is kept in its file, as a copy in memory if there is room; NULL. */
static uint8_t *copy_block(struct spool *spool, const struct record_place *place)
{
    size_t bytes = place->records * spool->config.record_bytes;
    if (!spool->copies || !take_room(spool))
        return NULL;
    uint8_t *copy = malloc(bytes), *other = NULL;
    if (copy && file_part(place->block->file, place->block->at, copy, bytes) == OK &&
        atomic_compare_exchange_strong(&place->block->values, &other, copy))
        return copy;
    free(copy);
    atomic_fetch_sub(&spool->kept_count, 1);
    return other; /* that of another thread, or none */
}

int spool_read(struct spool *spool, size_t i, void *values)
{
    struct record_place place = locate_record(spool, i);
    size_t each = spool->config.record_bytes, at = place.at * each;
    const uint8_t *copy = atomic_load(&place.block->values);
    if (!copy)
        copy = copy_block(spool, &place);
    if (!copy)
        return file_part(place.block->file, place.block->at + at, values, each);
    memcpy(values, copy + at, each);
    return OK;
}

uint32_t spool_label(const struct spool *spool, size_t i)
{
    struct record_place place = locate_record(spool, i);
    return place.block->labels[place.at];
}
