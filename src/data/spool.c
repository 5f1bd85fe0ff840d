#include "data/spool.h"

#include "base/array.h"
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
    return OK;
}

void spool_close(struct spool *spool)
{
    if (spool->out)
        spool->config.disk->ops->close(spool->out, NULL);
    if (spool->has_file)
        file_close(&spool->in);
    for (size_t i = 0; i < spool->kept_count; i++)
        free(spool->kept[i]);
    free(spool->kept);
    free(spool->block);
    free(spool->labels);
    hash_stream_free(spool->hash);
    *spool = (struct spool){0};
}

static size_t block_bytes(const struct spool *spool)
{
    return spool->per_block * spool->config.record_bytes;
}

/* ---- filling ---- */

static bool has_label_room(struct spool *spool, size_t n)
{
    while (spool->labels_room < n)
        if (!array_grow(&spool->labels, spool->labels_room, &spool->labels_room,
                        sizeof *spool->labels))
            return false;
    return true;
}

int spool_acquire(struct spool *spool, void **values, uint32_t **labels, size_t *room,
                  struct err *err)
{
    PL_ASSERT(!spool->sealed);
    size_t filled = spool->count % spool->per_block;
    *room = spool->per_block - filled;
    if (!spool->block)
        spool->block = malloc(block_bytes(spool));
    if (!spool->block || !has_label_room(spool, spool->count + *room))
        return err_set(err, ERR_NOMEM, "out of memory for record %zu of a stream", spool->count);
    *values = spool->block + filled * spool->config.record_bytes;
    *labels = spool->labels + spool->count;
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
    int removed = ops->remove(config->disk, config->path, rc == OK ? err : NULL);
    return rc == OK ? removed : rc;
}

static int write_block(struct spool *spool, struct err *err)
{
    const struct spool_config *config = &spool->config;
    int rc = spool->out ? OK : open_file(spool, err);
    if (rc == OK)
        rc = config->disk->ops->write(spool->out, spool->block, block_bytes(spool), err);
    if (rc == OK)
        spool->in.len += block_bytes(spool);
    return rc;
}

/* A block is full. It stays in memory as long as there is room for it. */
static int end_block(struct spool *spool, struct err *err)
{
    size_t kept = spool->kept_count * block_bytes(spool), most = spool->config.memory;
    if (spool->config.disk && (kept > most || block_bytes(spool) > most - kept))
        return write_block(spool, err);
    if (spool->kept_count == spool->kept_room &&
        !array_grow(&spool->kept, spool->kept_count, &spool->kept_room, sizeof *spool->kept))
        return err_set(err, ERR_NOMEM, "out of memory for record %zu of a stream", spool->count);
    spool->kept[spool->kept_count++] = spool->block;
    spool->block = NULL;
    return OK;
}

int spool_commit(struct spool *spool, size_t n, struct err *err)
{
    size_t filled = spool->count % spool->per_block, each = spool->config.record_bytes;
    PL_ASSERT(!spool->sealed && spool->block && n <= spool->per_block - filled);
    hash_stream_add(spool->hash, spool->block + filled * each, n * each);
    spool->count += n;
    return filled + n == spool->per_block ? end_block(spool, err) : OK;
}

int spool_seal(struct spool *spool, struct err *err)
{
    PL_ASSERT(!spool->sealed);
    spool->sealed = true;
    spool->hash_value = hash_stream_take(spool->hash);
    spool->hash_value += spool->hash_value == 0;
    if (!spool->out)
        return OK;
    int rc = spool->config.disk->ops->close(spool->out, err);
    spool->out = NULL;
    return rc;
}

/* ---- reading ---- */

/* The first blocks are in memory, the last one, which is not full, too; those between in the
 * file. */
int spool_read(const struct spool *spool, size_t i, void *values)
{
    PL_ASSERT(spool->sealed && i < spool->count);
    size_t number = i / spool->per_block, each = spool->config.record_bytes;
    size_t at = i % spool->per_block * each;
    const uint8_t *block = number < spool->kept_count                  ? spool->kept[number]
                           : number == spool->count / spool->per_block ? spool->block
                                                                       : NULL;
    if (!block)
        return file_part(&spool->in, (number - spool->kept_count) * block_bytes(spool) + at, values,
                         each);
    memcpy(values, block + at, each);
    return OK;
}
