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

static void put(struct batch *batch, size_t slot, const struct dataset *set, size_t i)
{
    dataset_read(set, i, batch->data + slot * batch->record_floats, &batch->labels[slot],
                 &batch->records[slot]);
}

static void check_room(const struct batch *batch, const struct dataset *set, size_t count)
{
    const struct shape *shape = &set->source->shape;
    PL_ASSERT(count <= batch->cap);
    PL_ASSERT(batch->record_floats == shape->dim[0] * shape->dim[1] * shape->dim[2]);
}

void batch_fill(struct batch *batch, const struct dataset *set, const struct sampler *sampler,
                uint64_t start, size_t count)
{
    check_room(batch, set, count);
    PL_ASSERT(sampler->n == set->count);
    uint64_t epoch = start / sampler->n;
    size_t place = (size_t)(start % sampler->n);
    batch->epoch = epoch;
    batch->count = count;
    for (size_t slot = 0; slot < count; slot++) {
        put(batch, slot, set, sampler_at(sampler, epoch, place));
        if (++place == sampler->n) {
            place = 0;
            epoch++;
        }
    }
}

void batch_fill_plain(struct batch *batch, const struct dataset *set, size_t first, size_t count)
{
    check_room(batch, set, count);
    PL_ASSERT(first <= set->count && count <= set->count - first);
    batch->epoch = 0;
    batch->count = count;
    for (size_t slot = 0; slot < count; slot++)
        put(batch, slot, set, first + slot);
}
