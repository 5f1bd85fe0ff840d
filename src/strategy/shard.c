#include "strategy/shard.h"

#include "base/fault.h"
#include "optim/schedule.h"

#include <string.h>

int shard_check(const struct optim *optim, struct err *err)
{
    return optim_needs_whole(optim)
               ? err_set(err, ERR_UNSUPPORTED,
                         "solver.clip_gradients: needs the whole gradient at once, and each of "
                         "several servers has a part of it")
               : OK;
}

size_t shard_states(const struct shard_config *config, const struct optim *optim)
{
    if (config->rule != SHARD_GRADIENTS)
        return config->rule == SHARD_ADAGRAD;
    bool plain = strcmp(config->solver->type, "SGD") == 0 && config->solver->momentum == 0;
    return plain ? 0 : optim->ops->states; /* without momentum, a step depends on no other */
}

/* The segments within [from, from + len), counted from there. */
static int cut_table(struct segments *out, const struct segments *table, size_t from, size_t len,
                     struct arena *arena)
{
    *out = (struct segments){.total = len};
    out->at = arena_array(arena, table->count, struct segment);
    if (!out->at)
        return ERR_NOMEM;
    for (size_t i = 0; i < table->count; i++) {
        struct segment segment = table->at[i];
        size_t begin = segment.offset > from ? segment.offset : from;
        size_t end = segment.offset + segment.len;
        end = end < from + len ? end : from + len;
        if (begin >= end)
            continue;
        segment.offset = begin - from;
        segment.len = end - begin;
        out->at[out->count++] = segment;
    }
    out->cap = table->count;
    return OK;
}

/* Both parts of a vector of the global model's range. */
static struct vec part_x(const struct shard *shard, const struct vec *both)
{
    return (struct vec){both->at, shard->x.n};
}

static struct vec part_s(const struct shard *shard, const struct vec *both)
{
    return (struct vec){both->at + shard->x.n, shard->s.n};
}

static void take_start(struct shard *shard, const struct vec *x, const struct vec *s)
{
    size_t from = shard->range.from, beyond = from > x->n ? from - x->n : 0;
    if (shard->x.n > 0)
        vec_export(x, (struct range){from, shard->x.n}, shard->x.at);
    if (shard->s.n > 0)
        vec_export(s, (struct range){beyond, shard->s.n}, shard->s.at);
}

int shard_init(struct shard *shard, const struct shard_config *config, const struct segments *table,
               const struct vec *x, const struct vec *s, struct range range, struct arena *arena,
               struct err *err)
{
    size_t end = range.from + range.len;
    size_t floats = range.from >= x->n ? 0 : (end < x->n ? end : x->n) - range.from;
    PL_ASSERT(end <= x->n + s->n && table->total == x->n);
    *shard = (struct shard){.config = *config, .range = range};
    if (vec_init(&shard->both, arena, range.len) != OK ||
        vec_init(&shard->scratch, arena, floats) != OK ||
        cut_table(&shard->table, table, range.from, floats, arena) != OK)
        return err_set(err, ERR_NOMEM, "no memory for a shard of %zu floats", range.len);
    shard->x = (struct vec){shard->both.at, floats};
    shard->s = (struct vec){shard->both.at + floats, range.len - floats};
    take_start(shard, x, s);
    if (config->rule == SHARD_UPDATES || config->rule == SHARD_ELASTIC)
        return OK;
    if (config->rule == SHARD_GRADIENTS)
        return optim_init(&shard->optim, config->solver, floats, arena, err);
    return vec_init(&shard->optim.state[0], arena, floats) == OK
               ? OK
               : err_set(err, ERR_NOMEM, "no memory for %zu floats of history", floats);
}

/* y ← Σ w_i x_i in order of i, of any number; the parts that `part` picks. */
static void weighted_sum(const struct shard *shard, struct vec *y, const struct push *push,
                         size_t count, bool mean,
                         struct vec (*part)(const struct shard *, const struct vec *))
{
    double all = 0;
    for (size_t i = 0; i < count; i++)
        all += (double)push[i].samples;
    for (size_t i = 0; i < count; i++) {
        const struct vec v = part(shard, push[i].vec);
        float w = mean ? (float)((double)push[i].samples / all) : 1.0f;
        const struct vec *one = &v;
        if (i == 0)
            vec_weighted_sum(y, &w, &one, 1, vec_all(y));
        else
            vec_axpy(y, w, &v, vec_all(y));
    }
}

/* DSSP, Algorithm 1, line 2: gradients that arrived together are aggregated first. A single one
 * counts in full. */
static void apply_gradients(struct shard *shard, const struct push *push, size_t count, double t)
{
    struct vec dx = part_x(shard, push[0].vec);
    if (count > 1) {
        weighted_sum(shard, &shard->scratch, push, count, !shard->config.sum, part_x);
        dx = shard->scratch;
    } else if (optim_writes_gradient(&shard->optim)) {
        vec_copy(&shard->scratch, &dx, vec_all(&dx));
        dx = shard->scratch;
    }
    optim_update(&shard->optim, t, &shard->x, &dx, &shard->table);
}

/* Adds the sum of a worker's local steps, which includes the rate. */
static void apply_update(struct shard *shard, const struct vec *a)
{
    vec_axpy(&shard->x, 1.0f, a, vec_all(&shard->x));
}

/* The gradient is −a: its scale, and with it the worker's rate, cancels in a/√h, so the rate is
 * applied again. The worker's gradients include the decay. */
static void apply_adagrad(struct shard *shard, const struct vec *a, float rate)
{
    const struct vec_adagrad config = {.rate = rate, .delta = shard->config.solver->delta};
    vec_copy(&shard->scratch, a, vec_all(a));
    vec_scale(&shard->scratch, -1.0f, vec_all(a));
    vec_adagrad(&shard->x, &shard->scratch, &shard->optim.state[0], &config, &shard->table,
                vec_all(&shard->x));
}

void shard_apply(struct shard *shard, const struct push *push, size_t count, double t)
{
    shard->applied += count;
    if (shard->config.rule == SHARD_ELASTIC)
        for (size_t i = 0; i < count; i++)
            vec_axpy(&shard->both, 1.0f, push[i].vec, vec_all(&shard->both));
    if (shard->x.n == 0 || count == 0 || shard->config.rule == SHARD_ELASTIC)
        return;
    if (shard->config.rule == SHARD_GRADIENTS) {
        apply_gradients(shard, push, count, t);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const struct vec a = part_x(shard, push[i].vec);
        if (shard->config.rule == SHARD_UPDATES)
            apply_update(shard, &a);
        else
            apply_adagrad(shard, &a, schedule_rate(shard->config.solver, t));
    }
}

void shard_average(struct shard *shard, const struct push *last, size_t count)
{
    if (shard->s.n > 0 && count > 0 && shard->config.rule != SHARD_ELASTIC)
        weighted_sum(shard, &shard->s, last, count, true, part_s);
}
