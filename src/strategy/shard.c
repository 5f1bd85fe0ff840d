#include "strategy/shard.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "group/members.h"
#include "optim/schedule.h"

#include <string.h>

static int check_whole(const struct optim *optim, struct err *err)
{
    bool clips = optim->solver->clip_gradients >= 0;
    if (!optim_needs_whole(optim))
        return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "solver.%s needs the whole gradient at once, and each of several servers has a "
                   "part of it",
                   clips ? "clip_gradients:" : "type: LARS");
}

int shard_check_solver(const Caffe__SolverParameter *solver, struct err *err)
{
    struct optim optim;
    struct arena arena;
    if (!solver)
        return OK;
    arena_init(&arena);
    int rc = optim_init(&optim, solver, 0, &arena, err);
    if (rc == OK)
        rc = check_whole(&optim, err);
    arena_release(&arena);
    return rc;
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

static void take_start(struct shard *shard, const struct vec *x, const struct vec *s)
{
    size_t from = shard->range.from, beyond = from > x->n ? from - x->n : 0;
    if (shard->x.n > 0)
        vec_export(x, (struct range){from, shard->x.n}, shard->x.at);
    if (shard->s.n > 0)
        vec_export(s, (struct range){beyond, shard->s.n}, shard->s.at);
}

/* Floats of x̃ in a range of the global model. */
static size_t floats_of_x(const struct range *range, size_t n_x)
{
    size_t end = min_size(range->from + range->len, n_x);
    return end > range->from ? end - range->from : 0;
}

int shard_init(struct shard *shard, const struct shard_config *config, const struct segments *table,
               const struct vec *x, const struct vec *s, struct range range, struct arena *arena,
               struct err *err)
{
    size_t floats = floats_of_x(&range, x->n);
    PL_ASSERT(range.from + range.len <= x->n + s->n && table->total == x->n);
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

/* y ← Σ w_i x_i in order of i, of any number; the parts of the pushes that begin at `from`. */
static void weighted_sum(struct vec *y, size_t from, const struct push *push, size_t count,
                         bool mean)
{
    double all = 0;
    for (size_t i = 0; i < count; i++)
        all += (double)push[i].samples;
    for (size_t i = 0; i < count; i++) {
        const struct vec v = {push[i].vec->at + from, y->n};
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
    struct vec dx = {push[0].vec->at, shard->x.n};
    if (count > 1) {
        weighted_sum(&shard->scratch, 0, push, count, !shard->config.sum);
        dx = shard->scratch;
    } else if (optim_writes_gradient(&shard->optim)) {
        vec_copy(&shard->scratch, &dx, vec_all(&dx));
        dx = shard->scratch;
    }
    optim_update(&shard->optim, t, &shard->x, &dx, &shard->table);
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
        const struct vec a = {push[i].vec->at, shard->x.n};
        if (shard->config.rule == SHARD_UPDATES) /* the sum of local steps has the rate in it */
            vec_axpy(&shard->x, 1.0f, &a, vec_all(&shard->x));
        else
            apply_adagrad(shard, &a, schedule_rate(shard->config.solver, t));
    }
}

void shard_average(struct shard *shard, const struct push *last, size_t count)
{
    if (shard->s.n > 0 && count > 0 && shard->config.rule != SHARD_ELASTIC)
        weighted_sum(&shard->s, shard->x.n, last, count, true);
}

/* ---- a state ---- */

enum { NUMBER = sizeof(uint64_t) / sizeof(float) }; /* floats of a number, whose bits they hold */

struct shard_layout shard_layout_of(const struct range *range, size_t n_x, size_t vectors)
{
    return (struct shard_layout){
        .model = range->len, .x = floats_of_x(range, n_x), .vectors = vectors};
}

size_t shard_state_length(const struct shard_layout *layout, size_t workers)
{
    PL_ASSERT(workers <= VIEW_MEMBERS_MAX);
    return layout->model + layout->vectors * layout->x + NUMBER * workers;
}

void shard_export_state(const struct shard_layout *layout, const struct shard_state *state,
                        float *at)
{
    vec_export(state->both, (struct range){state->from, layout->model}, at);
    for (size_t i = 0; layout->x > 0 && i < layout->vectors; i++)
        vec_export(&state->vector[i], (struct range){state->from, layout->x},
                   at + layout->model + i * layout->x);
    memcpy(at + shard_state_length(layout, 0), state->push, state->workers * sizeof *state->push);
}

void shard_import_state(const struct shard_layout *layout, const struct shard_state *state,
                        const float *at)
{
    struct vec into = *state->both;
    vec_import(&into, (struct range){state->from, layout->model}, at);
    for (size_t i = 0; layout->x > 0 && i < layout->vectors; i++) {
        into = state->vector[i];
        vec_import(&into, (struct range){state->from, layout->x},
                   at + layout->model + i * layout->x);
    }
    memcpy(state->push, at + shard_state_length(layout, 0), state->workers * sizeof *state->push);
}
