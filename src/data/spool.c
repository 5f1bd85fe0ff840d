#include "data/spool.h"

#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

int spool_open(struct spool *spool, const struct spool_config *config, struct err *err)
{
    PL_ASSERT(config->record_bytes > 0);
    size_t block = config->block_bytes ? config->block_bytes : BLOCK_BYTES;
    *spool = (struct spool){.config = *config};
    spool->per_block = block > config->record_bytes ? block / config->record_bytes : 1;
    spool->hash = hash_stream_create();
    if (!spool->hash)
        return err_set(err, ERR_NOMEM, "out of memory for a stream of records");
    hash_stream_begin(spool->hash);
    if (config->in_parts)
        spool->part = calloc(SPOOL_PARTS_MAX, sizeof *spool->part);
    return !config->in_parts || spool->part
               ? OK
               : err_set(err, ERR_NOMEM, "out of memory for the parts of a stream of records");
}

static void free_block(struct spool_block *block)
{
    free(block->values);
    free(block->labels);
}

/* Segment s has the blocks from SPOOL_SEGMENT * (2^s - 1) on. */
static struct spool_block *block_at(const struct spool *spool, size_t number, unsigned *segment)
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
    for (size_t i = 0; i < spool->blocks; i++)
        free_block(block_at(spool, i, NULL));
    free_block(&spool->block);
    for (size_t s = 0; s < SPOOL_SEGMENTS; s++)
        free(spool->segment[s]);
    free(spool->part);
    hash_stream_free(spool->hash);
    *spool = (struct spool){0};
}

static size_t block_bytes(const struct spool *spool)
{
    return spool->per_block * spool->config.record_bytes;
}

/* ---- filling ---- */

int spool_acquire(struct spool *spool, void **values, uint32_t **labels, size_t *room,
                  struct err *err)
{
    PL_ASSERT(!spool->sealed);
    struct spool_block *block = &spool->block;
    size_t filled = spool->count % spool->per_block;
    *room = spool->per_block - filled;
    if (!block->values)
        block->values = malloc(block_bytes(spool));
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

static int write_block(struct spool *spool, struct err *err)
{
    const struct spool_config *config = &spool->config;
    int rc = spool->out ? OK : open_file(spool, err);
    if (rc == OK)
        rc = config->disk->ops->write(spool->out, spool->block.values, block_bytes(spool), err);
    return rc;
}

/* Records [0, n) of the block. The hash is the same however they were committed. */
static void hash_block(struct spool *spool, size_t n)
{
    hash_stream_add(spool->hash, spool->block.values, n * spool->config.record_bytes);
    hash_stream_add(spool->hash, spool->block.labels, n * sizeof *spool->block.labels);
}

/* Where readers find the block that is being filled. Its values stay in memory, or will be in the
 * file. Nothing if they have found it already. */
static int show_block(struct spool *spool, bool keeps, struct err *err)
{
    unsigned s;
    struct spool_block *to = block_at(spool, spool->blocks, &s);
    if (spool->shown)
        return OK;
    if (!to)
        spool->segment[s] = calloc((size_t)SPOOL_SEGMENT << s, sizeof *to);
    to = block_at(spool, spool->blocks, NULL);
    if (!to)
        return err_set(err, ERR_NOMEM, "out of memory for record %zu of a stream", spool->count);
    *to = (struct spool_block){keeps ? spool->block.values : NULL, spool->block.labels};
    return OK;
}

/* The block is complete. */
static int add_block(struct spool *spool, bool keeps, struct err *err)
{
    int rc = show_block(spool, keeps, err);
    if (rc != OK)
        return rc;
    bool readers_have_it = keeps || spool->shown;
    spool->block = (struct spool_block){readers_have_it ? NULL : spool->block.values, NULL};
    spool->shown = false;
    spool->blocks++;
    return OK;
}

/* A block is full. It stays in memory as long as there is room for it. */
static int end_block(struct spool *spool, struct err *err)
{
    size_t kept = spool->kept_count * block_bytes(spool), most = spool->config.memory;
    bool keeps = !spool->config.disk || (kept <= most && block_bytes(spool) <= most - kept);
    hash_block(spool, spool->per_block);
    int rc = keeps ? OK : write_block(spool, err);
    if (rc == OK)
        rc = add_block(spool, keeps, err);
    if (rc != OK)
        return rc;
    spool->kept_count += keeps;
    if (!spool->part)
        atomic_store(&spool->readable, spool->count);
    return OK;
}

int spool_commit(struct spool *spool, size_t n, struct err *err)
{
    size_t filled = spool->count % spool->per_block;
    PL_ASSERT(!spool->sealed && spool->block.values && n <= spool->per_block - filled);
    spool->count += n;
    return filled + n == spool->per_block ? end_block(spool, err) : OK;
}

/* Readers find the block that is being filled, if it has records. */
static int show_all(struct spool *spool, struct err *err)
{
    bool begun = spool->count % spool->per_block > 0;
    int rc = begun ? show_block(spool, true, err) : OK;
    if (rc == OK)
        spool->shown = begun;
    return rc;
}

int spool_flush(struct spool *spool, struct err *err)
{
    PL_ASSERT(!spool->sealed && !spool->part);
    int rc = show_all(spool, err);
    if (rc == OK)
        atomic_store(&spool->readable, spool->count);
    return rc;
}

int spool_cut(struct spool *spool, uint64_t hash, struct err *err)
{
    size_t n = atomic_load(&spool->parts);
    PL_ASSERT(!spool->sealed && spool->part);
    if (spool->count == atomic_load(&spool->readable))
        return err_set(err, ERR_USAGE, "a part of a stream needs a record");
    if (n == SPOOL_PARTS_MAX)
        return err_set(err, ERR_FULL, "a stream has at most %d parts", SPOOL_PARTS_MAX);
    int rc = show_all(spool, err);
    if (rc != OK)
        return rc;
    spool->part[n] = (struct spool_part){spool->count, hash};
    atomic_store(&spool->parts, n + 1); /* first: what is readable is in a part */
    atomic_store(&spool->readable, spool->count);
    return OK;
}

int spool_seal(struct spool *spool, struct err *err)
{
    PL_ASSERT(!spool->sealed);
    size_t left = spool->count % spool->per_block;
    spool->sealed = true;
    if (left > 0)
        hash_block(spool, left);
    spool->hash_value = hash_stream_take(spool->hash);
    spool->hash_value += spool->hash_value == 0;
    int rc = left > 0 ? add_block(spool, true, err) : OK;
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

static const struct spool_block *find_block(const struct spool *spool, size_t i)
{
    PL_ASSERT(i < atomic_load(&spool->readable));
    return block_at(spool, i / spool->per_block, NULL);
}

int spool_read(const struct spool *spool, size_t i, void *values)
{
    const struct spool_block *block = find_block(spool, i);
    size_t number = i / spool->per_block, each = spool->config.record_bytes;
    size_t at = i % spool->per_block * each;
    if (!block->values)
        return file_part(&spool->in, (number - spool->kept_count) * block_bytes(spool) + at, values,
                         each);
    memcpy(values, block->values + at, each);
    return OK;
}

uint32_t spool_label(const struct spool *spool, size_t i)
{
    return find_block(spool, i)->labels[i % spool->per_block];
}
