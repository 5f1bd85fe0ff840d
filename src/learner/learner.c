#include "learner/learner.h"

#include "base/fault.h"
#include "optim/schedule.h"

#include <math.h>
#include <stdatomic.h>

int learner_init(struct learner *l, struct world *world, const Paceline__Job *job,
                 const struct corpus *corpus, struct workspace *ws, struct arena *arena,
                 struct vec *dx, struct err *err)
{
    *l = (struct learner){
        .world = world,
        .job = job,
        .corpus = corpus,
        .ws = ws,
        .table = net_segments(ws->train),
    };
    size_t n = l->table->total;
    if (vec_init(&l->x, arena, n) != OK ||
        vec_init(&l->s, arena, net_state_segments(ws->train)->total) != OK ||
        (!dx && vec_init(&l->dx, arena, n) != OK))
        return err_set(err, ERR_NOMEM, "net: out of memory for %zu parameters", n);
    if (dx)
        l->dx = *dx;
    int rc = schedule_check(job->solver, err);
    if (rc == OK)
        rc = optim_init(&l->optim, job->solver, n, arena, err);
    if (rc == OK)
        net_init(ws->train, job->seed, &l->x, &l->s);
    return rc;
}

int learner_gradient(struct learner *l, uint64_t start, size_t count)
{
    PL_ASSERT(count > 0 && count <= l->job->batch);
    if (l->progress)
        atomic_fetch_add(l->progress, 1);
    struct cost cost = {l->step_seconds * (double)count / (double)l->job->batch};
    int rc = l->world ? world_work(l->world, &cost) : OK;
    if (rc != OK)
        return rc;
    struct batch *records = &l->ws->batch;
    struct sampler sampler = {l->job->seed, l->corpus->set[SET_TRAIN].count};
    batch_fill(records, &l->corpus->set[SET_TRAIN], &sampler, start, count);
    struct net_batch batch = {
        .data = records->data,
        .labels = records->labels,
        .records = records->records,
        .count = count,
        .seed = l->job->seed,
        .epoch = records->epoch,
    };
    struct net_result result;
    net_forward(l->ws->train, &l->x, &l->s, &batch, &result);
    vec_fill(&l->dx, vec_all(&l->dx), 0.0f);
    net_backward(l->ws->train, &l->x, &l->dx);
    l->loss = result.loss / (double)count;
    l->samples += count;
    return isfinite(l->loss) ? OK : ERR_DIVERGED;
}

/* The solver's clock: this learner's own steps, or the place in the run in epochs. */
static double clock_value(const struct learner *l, uint64_t start)
{
    if (l->job->solver->clock == CAFFE__SOLVER_PARAMETER__CLOCK__epochs)
        return (double)start / (double)l->corpus->set[SET_TRAIN].count;
    return (double)l->steps;
}

float learner_rate(const struct learner *l, uint64_t start)
{
    return schedule_rate(l->job->solver, clock_value(l, start));
}

void learner_update(struct learner *l, uint64_t start)
{
    optim_update(&l->optim, clock_value(l, start), &l->x, &l->dx, l->table);
    l->steps++;
}

int learner_step(struct learner *l, uint64_t start, size_t count)
{
    int rc = learner_gradient(l, start, count);
    if (rc == OK)
        learner_update(l, start);
    return rc;
}
