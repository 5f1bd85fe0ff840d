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

/* The job's `pace`: a step takes so many seconds at least. Where steps have a cost the wait comes
 * before the arithmetic, which is to happen whole at the step's end: learners may share dx. */
static int keep_pace(const struct learner *l, int64_t begun, bool costs)
{
    if (!l->world || l->job->pace <= 0 || costs != (l->step_seconds > 0))
        return OK;
    return world_sleep(l->world, begun + (int64_t)(l->job->pace * 1e9));
}

int learner_gradient(struct learner *l, uint64_t start, size_t count)
{
    PL_ASSERT(count > 0 && count <= l->job->batch);
    if (l->progress)
        atomic_fetch_add(l->progress, 1);
    struct cost cost = {l->step_seconds * (double)count / (double)l->job->batch};
    int64_t begun = l->world ? world_now(l->world) : 0;
    int rc = l->world ? world_work(l->world, &cost) : OK;
    if (rc == OK)
        rc = keep_pace(l, begun, true);
    if (rc != OK)
        return rc;
    const struct batch *records;
    rc = loader_take(&l->ws->loader, start, count, &records);
    if (rc != OK)
        return rc;
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
    rc = keep_pace(l, begun, false);
    return rc != OK ? rc : isfinite(l->loss) ? OK : ERR_DIVERGED;
}

/* The solver's clock: this learner's own steps, or the place in the run in epochs. */
static double clock_value(const struct learner *l, uint64_t start)
{
    if (l->job->solver->clock == CAFFE__SOLVER_PARAMETER__CLOCK__epochs)
        return (double)start / (double)l->corpus->set[SET_TRAIN].count;
    return (double)l->steps;
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
