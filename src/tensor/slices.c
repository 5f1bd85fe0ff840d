#include "tensor/slices.h"

#include "base/status.h"
#include "tensor/kernels_common.h"

/* Records of the left half: the largest power of two of slices that leaves some for the right. */
static size_t left_half(size_t records)
{
    size_t left = SLICE_RECORDS;
    while (2 * left < records)
        left *= 2;
    return left;
}

int slices_init(struct slices *s, struct arena *arena, size_t records, size_t floats, size_t *bytes)
{
    *s = (struct slices){.records = records, .floats = floats};
    size_t levels = 1;
    for (size_t n = records; n > SLICE_RECORDS; n = left_half(n))
        levels++;
    for (size_t i = 0; i < levels; i++) {
        s->level[i] = arena_array(arena, floats, float);
        if (!s->level[i])
            return ERR_NOMEM;
    }
    *bytes = levels * floats * sizeof(float);
    return OK;
}

struct summing {
    struct slices *slices;
    void (*set)(void *user, size_t first, size_t count, float *sum);
    void *user;
};

/* The records' sum into the level's buffer; the levels after it are free to use. */
static void sum_into(const struct summing *s, size_t level, size_t first, size_t count)
{
    float *sum = s->slices->level[level];
    if (count <= SLICE_RECORDS) {
        s->set(s->user, first, count, sum);
        return;
    }
    size_t left = left_half(count);
    sum_into(s, level, first, left);
    sum_into(s, level + 1, first + left, count - left);
    add_floats(s->slices->floats, s->slices->level[level + 1], sum);
}

const float *slices_sum(struct slices *s,
                        void (*set)(void *user, size_t first, size_t count, float *sum), void *user)
{
    const struct summing summing = {s, set, user};
    sum_into(&summing, 0, 0, s->records);
    return s->level[0];
}
