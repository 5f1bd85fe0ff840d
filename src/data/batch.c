#include "data/batch.h"

#include "base/fault.h"

int batch_init(struct batch *batch, struct arena *arena, size_t cap, size_t record_floats)
{
    PL_ASSERT(cap > 0 && record_floats > 0);
    size_t floats;
    if (__builtin_mul_overflow(cap, record_floats, &floats))
        return ERR_NOMEM;
    struct batch made = {
        .data = arena_array(arena, floats, float),
        .labels = arena_array(arena, cap, uint32_t),
        .records = arena_array(arena, cap, uint64_t),
        .cap = cap,
        .record_floats = record_floats,
    };
    if (!made.data || !made.labels || !made.records)
        return ERR_NOMEM;
    *batch = made;
    return OK;
}

void batch_release(struct batch *batch)
{
    scratch_release(&batch->scratch);
}

static int put_record(struct batch *batch, size_t slot, const struct dataset *set, size_t i,
                      const struct dataset_draw *draw, struct scratch *scratch, struct err *err)
{
    return dataset_read(set, i, draw, scratch, batch->data + slot * batch->record_floats,
                        &batch->labels[slot], &batch->records[slot], err);
}

static void set_count(struct batch *batch, const struct dataset *set, uint64_t epoch, size_t count)
{
    PL_ASSERT(count <= batch->cap);
    PL_ASSERT(batch->record_floats == shape_count(&set->shape));
    batch->epoch = epoch;
    batch->count = count;
}

void batch_begin(struct batch *batch, const struct dataset *set, const struct sampler *sampler,
                 uint64_t start, size_t count)
{
    PL_ASSERT(sampler->ranges > 0 ? sampler->n <= set->count : sampler->n == set->count);
    set_count(batch, set, start / sampler->n, count);
}

/* The record at a place of the endless stream of epochs. */
static size_t record_at(const struct sampler *sampler, uint64_t place)
{
    return sampler_at(sampler, place / sampler->n, (size_t)(place % sampler->n));
}

int batch_fill_part(struct batch *batch, const struct dataset *set, const struct sampler *sampler,
                    uint64_t start, size_t first, size_t count, struct scratch *scratch,
                    struct err *err)
{
    PL_ASSERT(first <= batch->count && count <= batch->count - first);
    int rc = OK;
    for (size_t slot = first; rc == OK && slot < first + count; slot++) {
        struct dataset_draw draw = {sampler->seed, (start + slot) / sampler->n};
        rc = put_record(batch, slot, set, record_at(sampler, start + slot), &draw, scratch, err);
    }
    return rc;
}

void batch_prefetch(const struct dataset *set, const struct sampler *sampler, uint64_t start,
                    size_t count)
{
    for (uint64_t place = start; place < start + count; place++)
        dataset_prefetch(set, record_at(sampler, place));
}

int batch_fill(struct batch *batch, const struct dataset *set, const struct sampler *sampler,
               uint64_t start, size_t count, struct err *err)
{
    batch_begin(batch, set, sampler, start, count);
    return batch_fill_part(batch, set, sampler, start, 0, count, &batch->scratch, err);
}

bool batch_may_fill_own(const struct dataset *set)
{
    return !set->bad && !set->source->ops->arrived;
}

int batch_fill_own(struct batch *batch, const struct dataset *set, size_t first, size_t count,
                   struct range own, struct err *err)
{
    PL_ASSERT(first <= set->count && count <= set->count - first);
    set_count(batch, set, 0, count);
    for (size_t slot = 0; slot < count; slot++) {
        bool is_own = slot >= own.from && slot < own.from + own.len;
        int rc =
            is_own ? put_record(batch, slot, set, first + slot, NULL, &batch->scratch, err) : OK;
        if (rc != OK)
            return rc;
        if (!is_own)
            dataset_label(set, first + slot, &batch->labels[slot], &batch->records[slot]);
    }
    return OK;
}

int batch_fill_plain(struct batch *batch, const struct dataset *set, size_t first, size_t count,
                     struct err *err)
{
    return batch_fill_own(batch, set, first, count, (struct range){0, count}, err);
}
