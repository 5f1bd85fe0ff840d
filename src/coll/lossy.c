#include "coll/lossy.h"

#include "base/minmax.h"

static void add_base(const struct exchange *e, struct vec *x, float times, size_t from, size_t end)
{
    if (from < end)
        vec_axpy(x, times, &e->base, (struct range){from, end - from});
}

void exchange_add_base(const struct exchange *e, struct vec *x, float times, struct range r)
{
    struct range exact = e->config.exact;
    size_t end = min_size(r.from + r.len, e->base.n);
    if (e->config.codec == CODEC_F32)
        return;
    add_base(e, x, times, r.from, min_size(end, exact.from));
    add_base(e, x, times, max_size(r.from, exact.from + exact.len), end);
}

struct coll_owed exchange_owed(const struct exchange *e, const struct vec *residual)
{
    float *at = residual->n > 0 ? residual->at : NULL;
    return (struct coll_owed){.sums = e->mine.weight > 0 ? at : NULL, .results = at};
}

void exchange_forget_lost(struct exchange *e)
{
    for (int i = 0; i < 2; i++)
        vec_fill(&e->residual[i], vec_all(&e->residual[i]), 0.0f);
}
