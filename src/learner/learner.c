#include "learner/learner.h"

#include "base/fault.h"
#include "job/job.h"
#include "world/trace.h"

#include <math.h>
#include <stdatomic.h>

int learner_init_unset(struct learner *l, struct world *world, const Paceline__Job *job,
                       const struct corpus *corpus, struct workspace *ws, struct arena *arena,
                       struct vec *dx, struct err *err)
{
    *l = (struct learner){
        .world = world,
        .job = job,
        .corpus = corpus,
        .ws = ws,
        .table = net_segments(ws->train),
        .epoch_records = corpus->set[SET_TRAIN].count,
    };
    size_t n = l->table->total;
    l->mark = arena_array(arena, l->table->count + 1, struct learner_mark);
    if (!l->mark ||
        vec_init_model(&l->both, &l->x, &l->s, arena, n, net_state_segments(ws->train)->total) !=
            OK ||
        (!dx && vec_init(&l->dx, arena, n) != OK) ||
        ((job->iter_size > 1 || job_shares_batch(job) || job_takes_all(job) ||
          ws->batch < job->batch) &&
         vec_init(&l->before, arena, n) != OK))
        return err_set(err, ERR_NOMEM, "net: out of memory for %zu parameters", n);
    if (dx)
        l->dx = *dx;
    if (workspace_fill(ws) != OK || local_create(ws, arena, &l->group) != OK)
        return err_set(err, ERR_NOMEM, "net: out of memory for %u local learners", job->local);
    if (carried_state_init(&l->carried, arena, corpus->set[SET_TRAIN].streams,
                           net_carried(ws->train), ws->batch) != OK)
        return err_set(err, ERR_NOMEM, "train_data.streams: out of memory for the state of %zu",
                       corpus->set[SET_TRAIN].streams);
    /* The loader of a simulation has served learners of earlier runs, which had their own
     * records. */
    if (ws->loader.set && !ws->loader.world && ws->loader.sampler.ranges > 0)
        ws->loader.sampler = dataset_sampler(&corpus->set[SET_TRAIN], job->seed);
    return optim_init(&l->optim, job->solver, n, arena, err);
}

int learner_init(struct learner *l, struct world *world, const Paceline__Job *job,
                 const struct corpus *corpus, struct workspace *ws, struct arena *arena,
                 struct vec *dx, struct err *err)
{
    int rc = learner_init_unset(l, world, job, corpus, ws, arena, dx, err);
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

/* The job's `pace`: a step takes at least `pace` seconds, and each part of a step its share. Where
 * steps have a cost (simulation), the wait is before the arithmetic, which must not be interrupted,
 * since learners may share dx. */
static int keep_pace(const struct learner *l, double share)
{
    if (!l->world || l->job->pace <= 0)
        return OK;
    return world_sleep(l->world, l->begun + (int64_t)(l->job->pace * share * 1e9));
}

/* ---- a step of one batch, or of several (iter_size) ----
 *
 * dx is Σ (b_i / b) g_i over the batches i of b_i records, as a mean over all b would be. */

/* dx holds the gradient of a batch that is not the step's last. */
static void save_sum(struct learner *l)
{
    if (l->part == 0)
        vec_fill(&l->before, vec_all(&l->before), 0.0f);
    vec_axpy(&l->before, l->weight, &l->dx, vec_all(&l->dx));
}

/* Adds the part of the last batch's gradient that backward has finished, from `from` on, to the
 * batches before it. */
static void gather_gradient(struct learner *l, size_t from)
{
    if (from >= l->gathered)
        return;
    struct range r = {from, l->gathered - from};
    l->gathered = from;
    if (l->parts == 1)
        return;
    vec_scale(&l->dx, l->weight, r);
    vec_axpy(&l->dx, 1.0f, &l->before, r);
}

/* Tell the loader the batches behind the next one: of this step, which has `left` records to go,
 * and of the following steps. */
static void hint_loader(struct learner *l, uint64_t next, size_t left)
{
    size_t batch = l->ws->batch;
    for (size_t step = 0;; step++) {
        for (size_t n; left > 0; next += n, left -= n) {
            n = left < batch ? left : batch;
            loader_expect(&l->ws->loader, next, n);
        }
        if (step == l->known)
            return;
        next = l->follows[step].start;
        left = l->follows[step].count;
    }
}

void learner_expect(struct learner *l, const struct stretch *step, size_t count)
{
    PL_ASSERT(count <= LEARNER_EXPECTS);
    for (size_t i = 0; i < count; i++)
        l->follows[i] = step[i];
    l->known = count;
}

/* The loader expects batches at one stride, which those of a step of several do not have: expect
 * the following steps as far apart as this one and the one before. */
static void expect_stride(struct learner *l, uint64_t start, size_t count)
{
    uint64_t stride = start - l->start;
    l->start = start;
    if (l->known > 0 || l->parts == 1 || l->samples == 0)
        return;
    for (size_t i = 0; i < LEARNER_EXPECTS; i++)
        l->follows[i] = (struct stretch){start + (i + 1) * stride, count};
    l->known = LEARNER_EXPECTS;
}

static struct trace_span span_of(const struct learner *l, enum span_kind kind, size_t count)
{
    return (struct trace_span){
        .kind = (uint8_t)kind, .row = TRACE_STEPS, .n = l->steps + 1, .amount = count};
}

/* A batch that was ready takes a few microseconds, which is no wait. */
static int take_batch(struct learner *l, uint64_t start, size_t count, const struct batch **records)
{
    enum { WAIT_NS = 50 * 1000 };
    int64_t begun = trace_now(l->world);
    int rc = loader_take(&l->ws->loader, start, count, records, &l->err);
    if (trace_now(l->world) - begun >= WAIT_NS)
        trace_end(l->world, begun, span_of(l, SPAN_DATA, count));
    return rc;
}

static int compute_batch(struct learner *l, uint64_t start, size_t count,
                         const struct net_watch *watch, double *loss)
{
    const struct batch *records;
    int rc = take_batch(l, start, count, &records);
    if (rc != OK)
        return rc;
    struct net_batch batch = {
        .data = records->data,
        .labels = records->labels,
        .records = records->records,
        .count = count,
        .seed = l->job->seed,
        .epoch = records->epoch,
        .carried = carried_state_begin(&l->carried, &l->ws->loader.sampler, start, records),
    };
    struct net_result result;
    int64_t begun = l->adapter.is_on ? world_now(l->world) : 0;
    rc = local_gradient(l->group, &l->x, &l->s, &l->dx, &batch, watch, &result);
    if (rc != OK)
        return rc;
    carried_state_end(&l->carried, &l->ws->loader.sampler, start, records,
                      net_own_records(l->ws->train, count));
    if (l->adapter.is_on)
        thread_adapter_record(&l->adapter, world_now(l->world) - begun, count);
    *loss += result.loss;
    return OK;
}

int learner_take_share(struct learner *l, const struct range *range, size_t ranges, uint64_t pass)
{
    struct learner_share *share = &l->share;
    size_t before = share->sampler.n, n = 0;
    PL_ASSERT(ranges > 0 && ranges <= LEARNER_RANGES_MAX);
    /* Behind this call no task of the loader reads the old ranges. */
    int rc = loader_draw(&l->ws->loader, &l->ws->loader.sampler);
    if (rc != OK)
        return rc;
    for (size_t i = 0; i < ranges; i++) {
        PL_ASSERT(range[i].len > 0);
        share->range[i] = range[i];
        n += range[i].len;
    }
    if (before > 0 && share->next / before + 1 > pass)
        pass = share->next / before + 1;
    share->sampler = dataset_sampler(&l->corpus->set[SET_TRAIN], l->job->seed);
    share->sampler.n = n;
    share->sampler.range = share->range;
    share->sampler.ranges = ranges;
    share->next = pass * n;
    return loader_draw(&l->ws->loader, &share->sampler);
}

/* Where the records of a step lie in the loader's stream: at the run's offset, or at the learner's
 * own place. */
static int find_records(struct learner *l, uint64_t *start, size_t count)
{
    struct learner_share *share = &l->share;
    if (share->sampler.ranges == 0)
        return OK;
    *start = share->next;
    share->next += count;
    sampler_count(&share->sampler, *start, count, share->used);
    l->known = 0;
    /* Learners of a simulation share a loader. */
    return l->ws->loader.world ? OK : loader_draw(&l->ws->loader, &share->sampler);
}

/* The arithmetic of a gradient; `watch` observes the last batch. */
static int compute_gradient(struct learner *l, uint64_t start, size_t count,
                            const struct net_watch *watch)
{
    size_t batch = l->ws->batch;
    double loss = 0;
    int found = find_records(l, &start, count);
    if (found != OK)
        return found;
    l->parts = (count + batch - 1) / batch;
    l->gathered = l->dx.n;
    expect_stride(l, start, count);
    for (l->part = 0; l->part < l->parts; l->part++) {
        size_t first = l->part * batch, n = count - first < batch ? count - first : batch;
        bool last = l->part + 1 == l->parts;
        l->weight = (float)n / (float)count;
        hint_loader(l, start + first + n, count - first - n);
        int rc = compute_batch(l, start + first, n, last ? watch : NULL, &loss);
        if (rc != OK)
            return rc;
        if (!last)
            save_sum(l);
    }
    l->known = 0;
    gather_gradient(l, 0);
    l->loss = loss / (double)count;
    l->samples += count;
    l->taken = count;
    return OK;
}

/* The share of a whole step that is done when `share` of its last batch is. */
static double share_of_step(const struct learner *l, double share)
{
    return ((double)l->part + share) / (double)l->parts;
}

/* Report that dx is finished from `from` on. */
static int announce_gradient(const struct learner *l, size_t from, double share)
{
    int rc = keep_pace(l, share);
    return rc == OK ? l->finished(l->user, from) : rc;
}

static int on_finished(void *user, size_t from, double share)
{
    struct learner *l = user;
    gather_gradient(l, from);
    return announce_gradient(l, from, share_of_step(l, share));
}

static int record_mark(void *user, size_t from, double share)
{
    struct learner *l = user;
    PL_ASSERT(l->marks < l->table->count);
    l->mark[l->marks++] = (struct learner_mark){from, share_of_step(l, share)};
    return OK;
}

/* ---- a slice of a model ----
 *
 * It waits within the step, and so spends the time of the arithmetic part by part. The job's `pace`
 * is that of the whole net's step: each part takes at least its share, and waits come on top. */

static bool is_slice(const struct learner *l)
{
    return slice_is_part(&l->ws->slice);
}

/* The part of the whole net's step that is done, when `share` of the batch's is. */
static int spend_until(struct learner *l, double share)
{
    double done = ((double)l->part * net_share(l->ws->train) + share) / (double)l->parts;
    double part = done - l->spent;
    const struct cost cost = {l->seconds * part};
    l->spent = done;
    int rc = cost.seconds > 0 ? world_work(l->world, &cost) : OK;
    if (rc != OK || !l->world || l->job->pace <= 0)
        return rc;
    return world_sleep(l->world, l->resumed + (int64_t)(l->job->pace * part * 1e9));
}

static int on_point(void *user, const struct net_point *point)
{
    struct learner *l = user;
    int rc = spend_until(l, point->share);
    if (rc == OK)
        rc = l->meet(l->meet_user, point);
    l->resumed = l->world ? world_now(l->world) : 0;
    return rc;
}

static int on_slice_finished(void *user, size_t from, double share)
{
    struct learner *l = user;
    gather_gradient(l, from);
    int rc = spend_until(l, share * net_share(l->ws->train));
    if (rc == OK)
        rc = l->finished(l->user, from);
    l->resumed = l->world ? world_now(l->world) : 0;
    return rc;
}

/* Other slices wait for this one's part of the step: pass the time of what is left of it. */
static int compute_slice(struct learner *l, uint64_t start, size_t count, double seconds)
{
    PL_ASSERT(l->meet);
    l->seconds = seconds;
    l->spent = 0;
    l->resumed = l->begun;
    local_set_meeting(l->group, on_point, l);
    struct net_point point;
    const struct net_watch watch = {on_slice_finished, l};
    int rc = compute_gradient(l, start, count, l->finished ? &watch : NULL);
    l->part = l->parts - 1;
    if (rc == OK)
        rc = spend_until(l, net_share(l->ws->train));
    if (rc == OK && !l->finished && net_ends_with_sum(l->ws->train, &l->dx, &point))
        rc = l->meet(l->meet_user, &point);
    return rc;
}

enum { NORM_SHIFT = 160 };

int learner_agree_on_norm(struct learner *l, const struct vec *part, double weight)
{
    if (!is_slice(l) || !optim_clips(&l->optim))
        return OK;
    const struct segments *whole = net_whole_segments(l->ws->train);
    double squares = 0;
    for (size_t i = 0; i < l->table->count; i++) /* of what each slice has whole the first counts */
        if (whole->at[i].units > 0 || l->ws->slice.index == 0)
            squares += optim_square(&l->table->at[i], part);
    /* A square may be beyond a float's range, though the norm is not. */
    float sum[2] = {(float)squares, (float)ldexp(squares, -NORM_SHIFT)};
    const struct net_point point = {
        .meeting = NET_SUM,
        .number = net_points(l->ws->train) - 1,
        .values = sum,
        .rows = 1,
        .outputs = 1,
        .each = 2,
    };
    int rc = l->meet(l->meet_user, &point);
    if (rc != OK)
        return rc;
    squares = isfinite(sum[0]) ? (double)sum[0] : ldexp((double)sum[1], NORM_SHIFT);
    l->optim.norm = weight * sqrt(squares);
    l->optim.has_norm = true;
    return OK;
}

/* The group shares out the work of a batch, however many of them there are. */
static size_t shared_out(const struct learner *l, size_t count)
{
    return count < l->ws->batch ? count : l->ws->batch;
}

/* Simulation with a strategy that sends parts of dx: do the arithmetic at once, then wait for its
 * time part by part. dx is this learner's own. */
static int spend_in_parts(struct learner *l, uint64_t start, size_t count, double seconds)
{
    size_t shared = shared_out(l, count);
    l->marks = 0;
    int rc = compute_gradient(l, start, count, &(struct net_watch){record_mark, l});
    double done = 0;
    for (size_t i = 0; rc == OK && i < l->marks; i++) {
        const struct learner_mark *mark = &l->mark[i];
        rc = local_work(l->group, l->world, shared, seconds * (mark->share - done));
        done = mark->share;
        if (rc == OK)
            rc = announce_gradient(l, mark->from, mark->share);
    }
    return rc == OK ? local_work(l->group, l->world, shared, seconds * (1 - done)) : rc;
}

/* Simulation: the time that the batch comes late. */
static int await_batch(struct learner *l)
{
    double seconds = l->world ? l->world->costs.batch : 0;
    if (seconds <= 0)
        return OK;
    int64_t begun = trace_now(l->world);
    int rc = world_sleep(l->world, world_now(l->world) + (int64_t)(seconds * (double)WORLD_SECOND));
    l->late_s += seconds;
    trace_end(l->world, begun, span_of(l, SPAN_DATA, 0));
    return rc;
}

static int compute_step(struct learner *l, uint64_t start, size_t count)
{
    PL_ASSERT(count > 0 && (count <= job_step_records(l->job) || job_shares_batch(l->job) ||
                            job_takes_all(l->job)));
    if (l->progress)
        atomic_fetch_add(l->progress, 1);
    double seconds = l->step_seconds * (double)count / (double)l->job->batch;
    bool costs = l->step_seconds > 0;
    const struct net_watch watch = {on_finished, l};
    l->begun = l->world ? world_now(l->world) : 0;
    if (l->adapter.is_on)
        thread_adapter_apply(&l->adapter, l->begun, l->ws, l->group);
    int rc = await_batch(l);
    if (rc != OK)
        return rc;
    if (is_slice(l)) {
        rc = compute_slice(l, start, count, seconds);
    } else if (l->finished && costs) {
        rc = spend_in_parts(l, start, count, seconds);
    } else {
        rc = l->world ? local_work(l->group, l->world, shared_out(l, count), seconds) : OK;
        if (rc == OK && costs)
            rc = keep_pace(l, 1);
        if (rc == OK)
            rc = compute_gradient(l, start, count, l->finished ? &watch : NULL);
    }
    if (rc == OK && !is_slice(l) && (!costs || l->finished))
        rc = keep_pace(l, 1);
    return rc != OK ? rc : isfinite(l->loss) ? OK : ERR_DIVERGED;
}

static int run_gradient(struct learner *l, uint64_t start, size_t count)
{
    int rc = compute_step(l, start, count);
    if (l->world)
        l->steps_s += world_seconds(world_now(l->world) - l->begun);
    return rc;
}

int learner_gradient(struct learner *l, uint64_t start, size_t count)
{
    int64_t begun = trace_now(l->world);
    int rc = run_gradient(l, start, count);
    trace_end(l->world, begun, span_of(l, SPAN_COMPUTE, count));
    return rc;
}

/* The solver's clock: this learner's own steps, or the epochs of the run's sample offset. */
static double clock_value(const struct learner *l, uint64_t start)
{
    if (l->job->solver->clock == CAFFE__SOLVER_PARAMETER__CLOCK__epochs)
        return (double)start / (double)l->epoch_records;
    return (double)l->steps;
}

static void update_model(struct learner *l, uint64_t start)
{
    optim_update(&l->optim, clock_value(l, start), &l->x, &l->dx, l->table);
    l->steps++;
}

void learner_update(struct learner *l, uint64_t start)
{
    struct trace_span span = span_of(l, SPAN_UPDATE, 0);
    int64_t begun = trace_now(l->world);
    update_model(l, start);
    trace_end(l->world, begun, span);
}

void learner_update_plainly(struct learner *l, uint64_t start, struct vec *step)
{
    struct trace_span span = span_of(l, SPAN_UPDATE, 0);
    int64_t begun = trace_now(l->world);
    optim_step_plainly(&l->optim, clock_value(l, start), &l->x, &l->dx, step, l->table);
    l->steps++;
    trace_end(l->world, begun, span);
}

int learner_step(struct learner *l, uint64_t start, size_t count)
{
    if (!l->optim.ops->update)
        return err_set(&l->err, ERR_UNSUPPORTED,
                       "solver.type: \"%s\" has no steps of a batch, only strategy full_batch has "
                       "its steps",
                       l->optim.ops->type);
    struct trace_span span = span_of(l, SPAN_COMPUTE, count);
    int64_t begun = trace_now(l->world);
    int rc = run_gradient(l, start, count);
    if (rc == OK)
        rc = learner_agree_on_norm(l, &l->dx, 1);
    if (rc == OK)
        update_model(l, start);
    trace_end(l->world, begun, span);
    return rc;
}
