#include "data/source_random.h"

#include "base/fault.h"
#include "base/hash.h"
#include "base/rng.h"

#include <stdlib.h>

struct source_random {
    struct source source;
    uint64_t seed;
    float *row; /* a record's values, and one more for each record after the first */
};

static int read_record(const struct source *source, size_t i, struct scratch *scratch,
                       struct raw *raw, struct err *err)
{
    (void)scratch;
    (void)err;
    const struct source_random *self = (const struct source_random *)source;
    const size_t *dim = source->shape.dim;
    *raw = (struct raw){self->row + i, RAW_FLOATS, dim[0], dim[1], dim[2], 0};
    return OK;
}

static uint32_t label_of(const struct source *source, size_t i)
{
    const struct source_random *self = (const struct source_random *)source;
    return (uint32_t)rng_below(self->seed, RNG_BENCH, UINT64_MAX - i, source->classes);
}

static void close_random(struct source *source)
{
    struct source_random *self = (struct source_random *)source;
    free(self->row);
    free(self);
}

static const struct source_ops ops = {
    .kind = "random",
    .read = read_record,
    .label = label_of,
    .close = close_random,
};

int source_random_open(const struct shape *record, uint32_t classes, uint64_t seed,
                       struct source **out, struct err *err)
{
    size_t each = shape_count(record), n = each + SOURCE_RANDOM_RECORDS - 1;
    PL_ASSERT(each > 0 && classes > 0);
    struct source_random *self = calloc(1, sizeof *self);
    float *row = self && n < SIZE_MAX / sizeof *row ? malloc(n * sizeof *row) : NULL;
    if (!row) {
        free(self);
        return err_set(err, ERR_NOMEM, "out of memory for records of %zu values", each);
    }
    for (size_t i = 0; i < n; i++)
        row[i] = rng_uniform(seed, RNG_BENCH, i);
    *self = (struct source_random){
        .source =
            {
                .ops = &ops,
                .count = SOURCE_RANDOM_RECORDS,
                .shape = record->n == 3 ? *record : (struct shape){3, {each, 1, 1}},
                .classes = classes,
                .hash = hash_mix(hash_mix(hash_mix(seed, each), classes), record->n),
            },
        .seed = seed,
        .row = row,
    };
    *out = &self->source;
    return OK;
}
