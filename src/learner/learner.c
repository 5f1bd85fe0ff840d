#include "learner/learner.h"

#include "base/fault.h"
#include "optim/schedule.h"
#include "world/trace.h"

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
    l->mark = arena_array(arena, l->table->count + 1, struct learner_mark);
    if (!l->mark || vec_init(&l->x, arena, n) != OK ||
        vec_init(&l->s, arena, net_state_segments(ws->train)->total) != OK ||
        (!dx && vec_init(&l->dx, arena, n) != OK))
        return err_set(err, ERR_NOMEM, "net: out of memory for %zu parameters", n);
    if (dx)
        l->dx = *dx;
    if (workspace_fill(ws) != OK || local_create(ws, arena, &l->group) != OK)
        return err_set(err, ERR_NOMEM, "net: out of memory for %u local learners", job->local);
    int rc = schedule_check(job->solver, err);
    if (rc == OK)
        rc = optim_init(&l->optim, job->solver, n, arena, err);
    if (rc == OK)
        net_init(ws->train, job->seed, &l->x, &l->s);
    return rc;
}

int learner_threads(const Paceline__Job *job)
{
    return job->threads > job->local ? (int)(job->threads / job->local) : 1;
}

int learner_start(struct learner *l, struct world *world, struct err *err)
{
    if (l->job->local == 1)
        return OK;
    int threads = l->step_seconds > 0 ? 0 : learner_threads(l->job);
    int rc = local_start(l->group, world, threads);
    return rc == OK ? OK : err_set(err, rc, "local: no task for a learner: %s", status_text(rc));
}

void learner_stop(struct learner *l)
{
    if (l->group)
        local_stop(l->group);
}

/* The job's `pace`: a step takes so many seconds at least, and each part of it its share. Where
 * steps have a cost the wait comes before the arithmetic, which is to happen whole at the step's
 * end: learners may share dx. */
static int keep_pace(const struct learner *l, double share)
{
    if (!l->world || l->job->pace <= 0)
        return OK;
    return world_sleep(l->world, l->begun + (int64_t)(l->job->pace * share * 1e9));
}

/* The arithmetic of a gradient. */
static int compute(struct learner *l, uint64_t start, size_t count, const struct net_watch *watch)
{
    const struct batch *records;
    int rc = loader_take(&l->ws->loader, start, count, &records);
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
    rc = local_gradient(l->group, &l->x, &l->s, &l->dx, &batch, watch, &result);
    if (rc != OK)
        return rc;
    l->loss = result.loss / (double)count;
    l->samples += count;
    return OK;
}

/* A part of dx is there. */
static int announce(void *user, size_t from, double share)
{
    const struct learner *l = user;
    int rc = keep_pace(l, share);
    return rc == OK ? l->finished(l->user, from) : rc;
}

static int note_mark(void *user, size_t from, double share)
{
    struct learner *l = user;
    PL_ASSERT(l->marks < l->table->count);
    l->mark[l->marks++] = (struct learner_mark){from, share};
    return OK;
}

/* Where steps have a cost, and somebody waits for each part of dx: the arithmetic at once, which
 * nobody sees, and then its time, part by part. dx is this learner's own. */
static int spend_in_parts(struct learner *l, uint64_t start, size_t count, double seconds)
{
    l->marks = 0;
    int rc = compute(l, start, count, &(struct net_watch){note_mark, l});
    double done = 0;
    for (size_t i = 0; rc == OK && i < l->marks; i++) {
        const struct learner_mark *mark = &l->mark[i];
        rc = local_work(l->group, l->world, count, seconds * (mark->share - done));
        done = mark->share;
        if (rc == OK)
            rc = announce(l, mark->from, mark->share);
    }
    return rc == OK ? local_work(l->group, l->world, count, seconds * (1 - done)) : rc;
}

static int gradient(struct learner *l, uint64_t start, size_t count)
{
    PL_ASSERT(count > 0 && count <= l->job->batch);
    if (l->progress)
        atomic_fetch_add(l->progress, 1);
    double seconds = l->step_seconds * (double)count / (double)l->job->batch;
    bool costs = l->step_seconds > 0;
    const struct net_watch watch = {announce, l};
    l->begun = l->world ? world_now(l->world) : 0;
    int rc = OK;
    if (l->finished && costs) {
        rc = spend_in_parts(l, start, count, seconds);
    } else {
        rc = l->world ? local_work(l->group, l->world, count, seconds) : OK;
        if (rc == OK && costs)
            rc = keep_pace(l, 1);
        if (rc == OK)
            rc = compute(l, start, count, l->finished ? &watch : NULL);
    }
    if (rc == OK && (!costs || l->finished))
        rc = keep_pace(l, 1);
    return rc != OK ? rc : isfinite(l->loss) ? OK : ERR_DIVERGED;
}

static struct trace_span span_of(const struct learner *l, enum span_kind kind, size_t count)
{
    return (struct trace_span){
        .kind = (uint8_t)kind, .row = TRACE_STEPS, .n = l->steps + 1, .amount = count};
}

int learner_gradient(struct learner *l, uint64_t start, size_t count)
{
    int64_t begun = trace_now(l->world);
    int rc = gradient(l, start, count);
    trace_end(l->world, begun, span_of(l, SPAN_COMPUTE, count));
    return rc;
}

/* The solver's clock: this learner's own steps, or the place in the run in epochs. */
static double clock_value(const struct learner *l, uint64_t start)
{
    if (l->job->solver->clock == CAFFE__SOLVER_PARAMETER__CLOCK__epochs)
        return (double)start / (double)l->corpus->set[SET_TRAIN].count;
    return (double)l->steps;
}

static void update(struct learner *l, uint64_t start)
{
    optim_update(&l->optim, clock_value(l, start), &l->x, &l->dx, l->table);
    l->steps++;
}

void learner_update(struct learner *l, uint64_t start)
{
    struct trace_span span = span_of(l, SPAN_UPDATE, 0);
    int64_t begun = trace_now(l->world);
    update(l, start);
    trace_end(l->world, begun, span);
}

int learner_step(struct learner *l, uint64_t start, size_t count)
{
    struct trace_span span = span_of(l, SPAN_COMPUTE, count);
    int64_t begun = trace_now(l->world);
    int rc = gradient(l, start, count);
    if (rc == OK)
        update(l, start);
    trace_end(l->world, begun, span);
    return rc;
}
