/* A worker says hello, waits for a view, and receives its initial state: from the driver, from its
 * peers, or in a run under way from a donor. */
#include "tensor/kernels.h"
#include "train/checkpoint.h"
#include "train/worker.h"
#include "train/worker_slice.h"
#include "world/trace.h"

#include <stdio.h>

int worker_open_extras(struct worker *w)
{
    for (size_t i = 0; i < w->strategy->extras; i++)
        if (vec_init(&w->extras.at[i], &w->arena, w->learner.x.n) != OK)
            return err_set(&w->err, ERR_NOMEM, "out of memory for a checkpoint");
    w->extras.here = true;
    return OK;
}

/* Keep the strategy's own vectors of a checkpoint. */
static int take_extra(struct worker *w, const float *from)
{
    int rc = worker_open_extras(w);
    for (size_t i = 0; rc == OK && i < w->strategy->extras; i++) {
        struct vec *extra = &w->extras.at[i];
        vec_import(extra, vec_all(extra), from + i * extra->n);
    }
    return rc;
}

static int take_state(struct worker *w, const struct model_header *header, const float *model)
{
    struct learner *l = &w->learner;
    size_t n = l->x.n;
    vec_import(&l->x, vec_all(&l->x), model);
    vec_import(&l->s, vec_all(&l->s), model + n);
    model += n + l->s.n;
    for (size_t i = 0; header->has_state && i < l->optim.ops->states; i++, model += n)
        vec_import(&l->optim.state[i], vec_all(&l->optim.state[i]), model);
    l->optim.updates = header->has_state ? header->updates : 0;
    w->start = header->progress;
    l->steps = header->progress.steps;
    int rc = header->has_extra ? take_extra(w, model) : OK;
    if (header->has_extra)
        model += w->strategy->extras * l->x.n;
    if (header->has_carried)
        carried_state_import(&l->carried, model, true);
    return rc;
}

/* Number of floats of the vectors that the header announces. */
static size_t floats_of(const struct worker *w, const struct model_header *header)
{
    const struct model_layout layout = worker_layout(w, header);
    return model_floats(&layout);
}

static int report_no_start(struct worker *w, int rc)
{
    return rc == OK || rc == ERR_DRIVER || rc == ERR_CANCELLED
               ? rc
               : err_set(&w->err, rc, "worker %u: no model to resume from: %s", w->world->self,
                         status_text(rc));
}

/* Take the received initial state from the publisher's copy. */
static int take_start(struct worker *w, int rc, const struct model_header *header)
{
    if (rc != OK)
        return report_no_start(w, rc);
    return take_state(w, header, w->publisher.copy);
}

/* ---- memory, while the state arrives ---- */

static int touch_memory(void *arg)
{
    struct worker *w = arg;
    struct learner *l = &w->learner;
    vec_touch(&l->x);
    if (!w->host->dx || l->dx.at != w->host->dx->at) /* other learners may be using it */
        vec_touch(&l->dx);
    for (size_t i = 0; i < l->optim.ops->states; i++)
        vec_touch(&l->optim.state[i]);
    return OK;
}

/* Touch the memory of x, dx and the optimizer's state in a task while the model is received, so
 * that the first step does not pay for page faults. Without memory for the task, the first step
 * does. */
static void begin_warming(struct worker *w)
{
    if (w->opening.late || w->opening.resumes)
        (void)world_spawn(w->world, "memory", touch_memory, w, &w->warming);
}

int worker_end_warming(struct worker *w)
{
    int rc = w->warming ? world_join(w->world, w->warming, WORLD_FOREVER, &(int){0}) : OK;
    if (rc == OK)
        w->warming = NULL;
    return rc;
}

/* ---- a run under way ---- */

/* Can this model be the donor's? The donor is a member of the view that admits this worker, and may
 * have left since. */
static bool may_be_donor(const struct worker *w, uint32_t node, const struct model_header *header)
{
    return header->use == 0 && node != w->world->self &&
           (view_rank(group_first_view(&w->group), node) >= 0 ||
            view_rank(group_view(&w->group), node) >= 0);
}

/* Receive the donor's model. Models of other senders are ignored. */
static int receive_start(struct worker *w, struct model_header *header)
{
    for (;;) {
        uint32_t from = WORLD_ANY;
        int rc = model_receive_header(w->world, &w->group, header, &from, WORLD_FOREVER);
        if (rc == OK && !may_be_donor(w, from, header)) {
            log_warn(w->host->log,
                     "a model of node %u, which is not this worker's donor, is dropped", from);
            continue;
        }
        if (rc == OK)
            rc = model_receive_vectors(w->world, &w->group, from, w->publisher.copy,
                                       w->publisher.room, header, MODEL_PAUSE_MAX);
        if (rc != ERR_TIMEOUT)
            return rc;
        log_warn(w->host->log,
                 "worker %u: its model is dropped: nothing more of it arrived in %.0f s", from,
                 world_seconds(MODEL_PAUSE_MAX));
    }
}

bool worker_lacks_model(const struct worker *w)
{
    if (w->job->slices > 1)
        return group_first_view(&w->group)->number > 1;
    return w->join.joined && w->traits.is_async && w->traits.join_needs_no_model;
}

static int report_joined(struct worker *w)
{
    struct buf view = {0};
    buf_put_u32(&view, group_first_view(&w->group)->number);
    int rc = worker_report(w, WIRE_JOIN_COMPLETE, &view);
    buf_release(&view);
    return rc;
}

/* Join a run under way: receive the join state from the donor. Where the next exchange brings the
 * model, it comes without vectors. */
static int join_run(struct worker *w)
{
    struct model_header header = {0};
    int64_t begun = trace_now(w->world);
    int rc = receive_start(w, &header);
    if (rc == ERR_DRIVER || rc == ERR_CANCELLED)
        return rc;
    trace_end(w->world, begun,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_MODELS,
                                  .peer = WORLD_ANY,
                                  .n = header.progress.exchanges});
    w->join.joined = true;
    w->join.state = header.admission;
    if (rc == OK)
        rc = worker_end_warming(w);
    if (rc == OK && w->traits.join_needs_no_model) {
        w->start = header.progress;
        w->learner.steps = header.progress.steps;
    } else {
        if (rc == OK && header.floats != floats_of(w, &header))
            rc = ERR_PROTOCOL;
        rc = take_start(w, rc, &header);
    }
    return rc != OK || worker_lacks_model(w) ? rc : report_joined(w);
}

/* ---- a run's first view ---- */

static int begin_slice(struct worker *w, int rc, const struct model_header *header)
{
    if (rc == OK)
        rc = worker_end_warming(w);
    if (rc == OK)
        rc = worker_slice_fetch(w, header);
    return report_no_start(w, rc);
}

/* Begin in the run's first view with a state that is not drawn from the seed. */
static int begin_run(struct worker *w)
{
    struct model_header header = {0};
    int64_t begun = trace_now(w->world);
    int rc = bootstrap_request(&w->group, &header);
    if (w->job->slices > 1)
        return begin_slice(w, rc, &header);
    if (rc == OK && floats_of(w, &header) > w->publisher.room)
        rc = ERR_PROTOCOL;
    if (rc == OK)
        rc = bootstrap_take(&w->bootstrap, &w->group, w->publisher.copy, floats_of(w, &header));
    if (rc == ERR_DRIVER || rc == ERR_CANCELLED)
        return rc;
    trace_end(w->world, begun,
              (struct trace_span){.kind = SPAN_WAIT,
                                  .row = TRACE_MODELS,
                                  .peer = WORLD_DRIVER,
                                  .n = header.progress.exchanges});
    if (rc == OK)
        rc = worker_end_warming(w);
    return take_start(w, rc, &header);
}

/* ---- the hello ---- */

static void describe_machine(const struct train_host *host, struct hello_machine *out)
{
    snprintf(out->cpu, sizeof out->cpu, "%s", host->cpu ? host->cpu : "");
    if (host->memory > 0 && host->memory < HELLO_MEMORY_MAX) {
        out->memory = host->memory;
        out->cores = host->cores < HELLO_CORES_MAX ? host->cores : HELLO_CORES_MAX;
    }
}

static int write_hello(const struct worker *w, struct buf *out, struct err *err)
{
    struct hello hello = {
        .version = WIRE_VERSION,
        .segments_hash = segments_hash(net_whole_segments(w->data.ws->train)),
        .threads = w->job->threads,
    };
    int rc = job_hash(w->job, &hello.job_hash, err);
    worker_copy_records(w, &hello.records);
    if (rc != OK)
        return rc;
    snprintf(hello.isa, sizeof hello.isa, "%s", kernels_isa());
    snprintf(hello.kernels, sizeof hello.kernels, "%s", w->data.ws->kernels->name);
    snprintf(hello.release, sizeof hello.release, "%s", release_text());
    if (w->host->name)
        snprintf(hello.host, sizeof hello.host, "%s", w->host->name);
    world_address(w->world, hello.address, sizeof hello.address);
    describe_machine(w->host, &hello.machine);
    hello_write(&hello, out);
    return OK;
}

static int send_hello(struct worker *w)
{
    struct buf bytes = {0};
    int rc = write_hello(w, &bytes, &w->err);
    if (rc == OK)
        rc = worker_report(w, WIRE_HELLO, &bytes);
    buf_release(&bytes);
    return rc;
}

/* A driver has replied to the listener's call. It decides by the hello whether this worker belongs
 * to its run. */
static int shake_hands(void *user, const struct message *m, uint32_t *incarnation,
                       struct buf *hello)
{
    const struct worker *w = user;
    struct byte_reader in = {m->data, m->len, false};
    struct welcome welcome;
    struct err err;
    int rc = welcome_decode(&in, &welcome);
    if (rc != OK)
        return rc;
    *incarnation = welcome.incarnation;
    welcome_release(&welcome);
    return write_hello(w, hello, &err);
}

/* Wait for the first view that holds this worker, or for the end of the run. A standby worker may
 * leave. */
static int await_view(struct worker *w)
{
    int rc;
    do {
        if (group_is_leaving(&w->group)) {
            w->leave.left = true;
            return OK;
        }
        rc = group_wait_view(&w->group, 0, world_now(w->world) + w->group.timing.heartbeat);
    } while (rc == ERR_TIMEOUT);
    return rc;
}

int worker_join(struct worker *w)
{
    struct group_timing timing = w->opening.busy_hosts ? group_timing_busy() : w->host->timing;
    group_init(&w->group, w->world, w->host->log, &timing);
    w->group.observer = train_observer(w->host);
    w->group.leave.flag = w->host->leave;
    w->group.leave.pause = w->host->pause;
    w->group.driver.retry = w->host->retry;
    w->group.driver.addresses = w->host->drivers;
    w->group.driver.handshake = (struct group_handshake){shake_hands, w};
    int rc = group_listen(&w->group);
    if (rc == OK)
        rc = send_hello(w);
    if (rc == OK)
        begin_warming(w);
    if (rc == OK)
        rc = await_view(w);
    if (rc == OK && !w->leave.left)
        rc = worker_take_seat(w);
    if (rc == OK && !w->leave.left && w->opening.traces)
        tracer_begin(w->world, w->host->trace, w->host->log);
    bool late = rc == OK && !w->leave.left && group_first_view(&w->group)->number > 1;
    if (late && w->job->slices == 1)
        rc = join_run(w); /* else its strategy receives the state */
    else if (rc == OK && !w->leave.left && !late && w->opening.resumes)
        rc = begin_run(w);
    if (rc == OK && !w->leave.left)
        rc = worker_await_share(w);
    return rc == OK ? worker_end_warming(w) : rc;
}
