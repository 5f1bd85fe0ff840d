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

static bool has_residuals(const struct exchange *e)
{
    return e->residual[0].n > 0;
}

static bool is_flush(const struct exchange *e, const struct exchange_meta *meta)
{
    return has_residuals(e) && meta->flush_votes > 0;
}

bool exchange_next_flushes(const struct exchange *e)
{
    return e->config.split != EXCHANGE_WHOLE && is_flush(e, exchange_result_meta(e));
}

enum codec exchange_codec(const struct exchange *e, const struct exchange_meta *meta)
{
    return is_flush(e, meta) ? CODEC_F32 : e->config.codec;
}

void exchange_pay_range(struct vec *x, float times, struct vec *residual, struct range r)
{
    vec_axpy(x, times, residual, r);
    vec_fill(residual, r, 0.0f);
}

void exchange_pay_owed(const struct exchange *e, const struct exchange_meta *meta, struct vec *x,
                       struct vec *residual)
{
    if (!is_flush(e, meta) || meta->weight == 0)
        return;
    exchange_pay_range(x, 1.0f, residual, vec_all(x));
}

bool exchange_may_flush(const struct exchange *e)
{
    const double rest = 20; /* times what a flush took */
    double since = world_seconds(world_now(e->group->world) - e->flushed_at);
    return has_residuals(e) && since >= rest * e->flush_s;
}

bool exchange_has_flushed(const struct exchange *e)
{
    return is_flush(e, exchange_result_meta(e));
}

void exchange_note_flush(struct exchange *e)
{
    if (!exchange_has_flushed(e))
        return;
    e->flush_s = e->cost.seconds - e->cost.waited_s;
    e->flushed_at = world_now(e->group->world);
}

void exchange_forget_lost(struct exchange *e)
{
    for (int i = 0; i < 2; i++)
        vec_fill(&e->residual[i], vec_all(&e->residual[i]), 0.0f);
}
