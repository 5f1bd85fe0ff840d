/* Parts of another spool, out of its log. */
#include "base/fault.h"
#include "data/spool_inner.h"

#include <stdlib.h>
#include <string.h>

static bool has_part(const struct spool *spool, uint64_t hash)
{
    for (size_t i = 0; i < atomic_load(&spool->parts); i++)
        if (spool->part[i].hash == hash)
            return true;
    return false;
}

/* Read a block, which has to be as it was written, and keep its labels in place `number`. */
static int adopt_block(struct spool *spool, const struct spool_log_reader *reader,
                       const struct spool_log_block *block, size_t number, void *values,
                       struct err *err)
{
    struct spool_block *to = spool_block_place(spool, number);
    if (to && !to->labels)
        to->labels = calloc(spool->per_block, sizeof *to->labels);
    if (!to || !to->labels)
        return err_set(err, ERR_NOMEM, "out of memory for a part of a log of records");
    int rc = spool_log_read(reader, block, values, to->labels, err);
    for (size_t i = 0; rc == OK && spool->config.classes > 0 && i < block->records; i++)
        if (to->labels[i] >= spool->config.classes)
            rc = err_set(err, ERR_INPUT, "the log of records has label %u of %u classes",
                         to->labels[i], spool->config.classes);
    to->file = reader->file;
    to->at = block->at;
    return rc;
}

static int adopt_part(struct spool *spool, const struct spool_log_reader *reader,
                      const struct spool_log_part *part, struct err *err)
{
    if (atomic_load(&spool->parts) == SPOOL_PARTS_MAX)
        return spool_fail_full(err);
    void *values = malloc(spool_block_bytes(spool));
    int rc = values ? OK : err_set(err, ERR_NOMEM, "out of memory for a log of records");
    size_t from = spool->blocks, made = 0;
    for (; rc == OK && made < part->blocks; made++)
        rc = adopt_block(spool, reader, &part->block[made], from + made, values, err);
    free(values);
    if (rc == OK) {
        spool->blocks += part->blocks;
        spool_add_part(spool, spool->count + part->records, part->hash, from);
        return OK;
    }
    for (size_t i = 0; i < made; i++) { /* no reader has seen them */
        struct spool_block *block = spool_block_at(spool, from + i, NULL);
        if (block)
            free(block->labels);
        if (block)
            block->labels = NULL;
    }
    return rc;
}

static bool is_fatal(int status)
{
    return status != OK && status != ERR_INPUT && status != ERR_IO;
}

/* The parts that are wanted; of errors with single ones the first. */
static int adopt_wanted(struct spool *spool, struct spool_log_reader *reader,
                        const struct spool_wanted *wanted, size_t count, bool *adopted,
                        struct err *err)
{
    struct err failed = {0};
    for (;;) {
        struct spool_log_part part;
        struct err now = {0};
        size_t k = 0;
        int rc = spool_log_next(reader, &part, &now);
        bool ends = rc != OK || part.blocks == 0;
        while (!ends && k < count &&
               (wanted[k].hash != part.hash || wanted[k].records != part.records))
            k++;
        if (!ends && k < count && !has_part(spool, part.hash)) {
            rc = adopt_part(spool, reader, &part, &now);
            adopted[k] = rc == OK;
        }
        if (rc != OK && failed.status == OK)
            failed = now;
        if (ends || is_fatal(rc))
            break;
    }
    if (failed.status != OK)
        *err = failed;
    return failed.status;
}

int spool_adopt(struct spool *spool, const struct file_open *file,
                const struct spool_wanted *wanted, size_t count, bool *adopted, struct err *err)
{
    struct file_open *in = &spool->adopted[spool->adopted_count], given = *file;
    size_t before = atomic_load(&spool->parts);
    PL_ASSERT(!spool->sealed && spool->part);
    memset(adopted, 0, count * sizeof *adopted);
    int rc = spool->count > spool->begin
                 ? err_set(err, ERR_USAGE, "the last records of a stream are in no part")
             : spool->adopted_count == SPOOL_FILES_MAX
                 ? err_set(err, ERR_FULL, "a stream adopts at most %d files", SPOOL_FILES_MAX)
                 : OK;
    if (rc != OK) {
        file_close(&given);
        return rc;
    }
    *in = given;
    struct spool_log_reader reader = {.file = in,
                                      .set = spool->config.set,
                                      .record_bytes = spool->config.record_bytes,
                                      .per_block = spool->per_block};
    rc = adopt_wanted(spool, &reader, wanted, count, adopted, err);
    spool_log_close(&reader);
    if (atomic_load(&spool->parts) > before)
        spool->adopted_count++;
    else
        file_close(in);
    return rc;
}
