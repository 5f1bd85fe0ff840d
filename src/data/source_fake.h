/* A source made up on the spot, for tests. Value k of record i is 100 i + k. */
#ifndef PL_DATA_SOURCE_FAKE_H
#define PL_DATA_SOURCE_FAKE_H

#include "data/source.h"

struct source_fake {
    struct source source;
    const uint32_t *labels; /* borrowed */
};

static inline uint32_t source_fake_label(const struct source *source, size_t i)
{
    return ((const struct source_fake *)source)->labels[i];
}

static inline int source_fake_read(const struct source *source, size_t i, struct scratch *scratch,
                                   struct raw *raw, struct err *err)
{
    size_t C = source->shape.dim[0], H = source->shape.dim[1], W = source->shape.dim[2];
    float *x = scratch_get(scratch, SCRATCH_PIXELS, C * H * W * sizeof *x);
    if (!x)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t k = 0; k < C * H * W; k++)
        x[k] = (float)(100 * i + k);
    *raw = (struct raw){x, RAW_FLOATS, C, H, W, 0};
    return OK;
}

static inline struct source_fake source_fake_make(const uint32_t *labels, size_t count,
                                                  struct shape shape)
{
    static const struct source_ops ops = {
        .kind = "fake",
        .read = source_fake_read,
        .label = source_fake_label,
    };
    uint32_t top = 0;
    for (size_t i = 0; i < count; i++)
        top = labels[i] > top ? labels[i] : top;
    return (struct source_fake){
        .source = {.ops = &ops, .count = count, .shape = shape, .classes = top + 1},
        .labels = labels,
    };
}

#endif
