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
                      const struct dataset_draw *draw, struct err *err)
{
    return dataset_read(set, i, draw, &batch->scratch, batch->data + slot * batch->record_floats,
                        &batch->labels[slot], &batch->records[slot], err);
}

static void begin_batch(struct batch *batch, const struct dataset *set, uint64_t epoch,
                        size_t count)
{
    PL_ASSERT(count <= batch->cap);
    PL_ASSERT(batch->record_floats == shape_count(&set->shape));
    batch->epoch = epoch;
    batch->count = count;
}

int batch_fill(struct batch *batch, const struct dataset *set, const struct sampler *sampler,
               uint64_t start, size_t count, struct err *err)
{
    PL_ASSERT(sampler->n == set->count);
    struct dataset_draw draw = {sampler->seed, start / sampler->n};
    size_t offset = (size_t)(start % sampler->n);
    begin_batch(batch, set, draw.epoch, count);
    for (size_t slot = 0; slot < count; slot++) {
        int rc = put_record(batch, slot, set, sampler_at(sampler, draw.epoch, offset), &draw, err);
        if (rc != OK)
            return rc;
        if (++offset == sampler->n) {
            offset = 0;
            draw.epoch++;
        }
    }
    return OK;
}

int batch_fill_plain(struct batch *batch, const struct dataset *set, size_t first, size_t count,
                     struct err *err)
{
    PL_ASSERT(first <= set->count && count <= set->count - first);
    begin_batch(batch, set, 0, count);
    for (size_t slot = 0; slot < count; slot++) {
        int rc = put_record(batch, slot, set, first + slot, NULL, err);
        if (rc != OK)
            return rc;
    }
    return OK;
}
