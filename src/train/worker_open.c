/* The worker's side of the handshake: it receives the welcome with the job, opens the data, plans
 * the net, sends the hello, waits for a view, and receives its initial state. */
#include "base/fault.h"
#include "tensor/kernels.h"
#include "train/connectivity.h"
#include "train/memory_need.h"
#include "train/worker.h"
#include "train/worker_slice.h"
#include "wire/wire_send.h"
#include "world/trace.h"

#include <stdio.h>
#include <string.h>

#define WELCOME_TIMEOUT (60 * WORLD_SECOND) /* without a sign of the driver's life */
#define LOOK_EVERY      (WORLD_SECOND / 4)  /* between two checks whether to leave */

int worker_report(struct worker *w, enum wire_kind kind, const struct buf *bytes)
{
    int rc = wire_send_buf(w->world, WORLD_DRIVER, kind, 0, bytes);
    return rc == ERR_PEER ? ERR_DRIVER : rc;
}

int worker_report_if_connected(struct worker *w, enum wire_kind kind, const struct buf *bytes)
{
    int rc = worker_report(w, kind, bytes);
    return rc == ERR_DRIVER && w->group.driver.retry > 0 && !atomic_load(&w->group.end.over) ? OK
                                                                                             : rc;
}

static int read_job(const char *text, Paceline__Job **out, struct err *err)
{
    int rc = job_parse("job", text, strlen(text), out, err);
    return rc == OK ? job_finish(*out, err) : rc;
}

/* Set the folder in which this worker may open data. A worker opens no other path of the driver's
 * job. */
static int take_root(struct worker *w, const struct welcome *welcome)
{
    const char *root = w->host->data_root;
    if (!root)
        return OK;
    if (w->job->net->source_case == PACELINE__NET__SOURCE_FILE)
        return err_set(&w->err, ERR_INPUT, "net.file: the driver is to send the net itself");
    int rc = read_job(welcome->job, &w->found, &w->err);
    return rc == OK ? job_move_data(w->found, welcome->folder, root, &w->err) : rc;
}

static int choose_threads(struct worker *w)
{
    Paceline__Job *job = w->job;
    uint32_t local = job->local, cores = w->host->cores > local ? w->host->cores : local;
    if (w->host->threads > 0 && w->host->threads < local)
        return err_set(&w->err, ERR_INPUT, "threads: %u are too few for `local: %u` learners",
                       w->host->threads, local);
    if (w->host->threads > 0 || !job->has_threads)
        job->threads = w->host->threads > 0 ? w->host->threads : cores;
    job->has_threads = true;
    return OK;
}

/* Wait for the welcome. The driver may still be opening its own data, and its messages show that it
 * is alive. */
static int await_driver(struct worker *w, struct wake *wake)
{
    const struct wait_for set[] = {
        wire_from(WORLD_DRIVER, WIRE_WELCOME),
        wire_from(WORLD_DRIVER, WIRE_OPENING),
        {.kind = WAIT_PEER},
    };
    int64_t received = world_now(w->world);
    for (;;) {
        int rc = world_wait(w->world, set, 3, world_now(w->world) + LOOK_EVERY, wake);
        if (rc == OK && wake->which == 0)
            return OK;
        if (rc == OK && wake->which == 1) {
            message_unref(wake->msg);
            received = world_now(w->world);
        }
        if (rc == OK && wake->which == 2 && !wake->up && wake->peer == WORLD_DRIVER)
            return err_set(&w->err, ERR_DRIVER, "no welcome from the driver: it is lost");
        if (rc != OK && rc != ERR_TIMEOUT)
            return err_set(&w->err, rc, "no welcome from the driver: %s", status_text(rc));
        if (worker_is_to_leave(w)) {
            w->opening.ended = ERR_STOP;
            return worker_report_ended(w);
        }
        if (world_now(w->world) - received > WELCOME_TIMEOUT)
            return err_set(&w->err, ERR_TIMEOUT,
                           "no welcome from the driver, and no sign of life, for %g s",
                           world_seconds(WELCOME_TIMEOUT));
    }
}

static int await_welcome(struct worker *w)
{
    struct wake wake;
    int rc = await_driver(w, &wake);
    if (rc != OK)
        return rc;
    struct byte_reader in = {wake.msg->data, wake.msg->len, false};
    struct welcome text;
    rc = welcome_decode(&in, &text);
    message_unref(wake.msg);
    if (rc == ERR_UNSUPPORTED)
        return release_differs(WIRE_VERSION, release_text(), text.version, text.release, &w->err);
    if (rc != OK)
        return err_set(&w->err, rc,
                       "the driver's welcome cannot be read: %s; install the same release on both",
                       status_text(rc));
    rc = read_job(text.job, &w->job, &w->err);
    if (rc == OK)
        rc = take_root(w, &text);
    if (rc == OK)
        rc = choose_threads(w);
    w->opening.busy_hosts = text.busy_hosts;
    w->opening.resumes = text.resumes;
    w->opening.late = text.late;
    w->opening.traces = text.traces;
    w->lease_client.from = text.leases_from;
    w->opening.checks = text.checks;
    w->opening.records = text.records;
    welcome_release(&text);
    return rc;
}

void worker_find_location(const struct worker *w, struct worker_location *out)
{
    *out = (struct worker_location){.host = ""};
    if (w->host->name)
        snprintf(out->host, sizeof out->host, "%s", w->host->name);
    world_address(w->world, out->address, sizeof out->address);
}

/* Of x as models have it that are sent: the whole of it. */
static const struct segments *model_table(const struct worker *w)
{
    return net_whole_segments(w->data.ws->train);
}

/* Of a model that brings all that it may. */
size_t worker_floats_most(const struct worker *w)
{
    const struct learner *l = &w->learner;
    return model_table(w)->total * (1 + l->optim.ops->states + w->strategy->extras) + l->s.n +
           carried_state_floats(l->carried.streams, l->carried.row);
}

static void add_remedy(struct err *err, const char *remedy)
{
    char text[ERR_TEXT_MAX];
    memcpy(text, err->text, sizeof text);
    err_set(err, err->status, "%s; %s", text, remedy);
}

/* Open the data and compare it with the driver's before any kernel is timed for its shapes. */
static int open_data(struct worker *w, const struct open_watch *watch)
{
    const Paceline__Job *job = w->found ? w->found : w->job;
    int rc = worker_begin_stage(w, "data");
    w->data.corpus = w->host->corpus;
    if (rc == OK && w->data.corpus)
        rc = worker_pass_opening(w);
    if (rc == OK && !w->data.corpus) {
        rc = worker_cache_open(&w->data.cache, job, w->host, &w->err);
        if (rc != OK)
            return rc;
        const struct source_config config = {.root = w->host->data_root,
                                             .urls = w->host->data_urls,
                                             .watch = watch,
                                             .cache = w->data.cache.records,
                                             .bindings = w->host->bindings,
                                             .remote = w->host->remote,
                                             .only_training = job->local_data};
        bool files = *job_data_path(job->train_data) != '\0';
        rc = worker_await_records(w);
        if (rc == OK)
            rc = corpus_open_with(&config, job, &w->data.own_corpus, &w->err);
        if (files && (rc == ERR_INPUT || rc == ERR_NOT_FOUND || rc == ERR_IO))
            add_remedy(&w->err, w->host->data_root
                                    ? "mount the data there or start the worker with another "
                                      "--data-root"
                                    : "mount the data there or start the worker with --data-root");
        w->data.corpus = &w->data.own_corpus;
    }
    if (rc != OK)
        return rc;
    worker_describe_records(w);
    return hello_check_records(&w->share.described, &w->opening.records, &w->err);
}

/* The net of that slice of the model, or of all of it; a simulated slice has one of its own, since
 * slices wait for each other within a step. */
static int open_net(struct worker *w, size_t slice, const struct open_watch *watch)
{
    int rc = OK;
    w->data.ws = w->host->ws;
    if (!w->data.ws) {
        rc = workspace_create_slice(slice, w->data.cache.budget, w->job, w->data.corpus,
                                    w->host->log, w->host->tuner, watch, &w->data.own_ws, &w->err);
        w->data.ws = w->data.own_ws;
        if (rc == OK && !w->host->corpus)
            rc = workspace_load_ahead(w->data.own_ws, w->world, (int)w->job->threads, &w->err);
    }
    if (rc == ERR_CANCELLED && w->opening.ended != OK)
        rc = worker_report_ended(w);
    return rc;
}

/* In simulation the memory is that of all nodes. */
static int check_memory(struct worker *w)
{
    struct optim optim;
    int rc = optim_init(&optim, w->job->solver, 0, &w->arena, &w->err);
    return rc != OK || w->host->corpus
               ? rc
               : memory_check_worker(w->job, "this worker", net_segments(w->data.ws->train)->total,
                                     optim.ops->states, &w->err);
}

static int make_learner(struct worker *w)
{
    struct vec *dx = w->traits.sends_gradients ? NULL : w->host->dx;
    int rc = check_memory(w);
    if (rc != OK)
        return rc;
    rc = (w->opening.resumes || w->opening.late ? learner_init_unset : learner_init)(
        &w->learner, w->world, w->job, w->data.corpus, w->data.ws, &w->arena, dx, &w->err);
    w->learner.step_seconds = w->host->step_seconds;
    w->learner.progress = &w->group.work.progress;
    if (rc == OK)
        rc = learner_start(&w->learner, w->world, &w->err);
    if (rc == OK && w->data.own_ws && w->job->slices == 1) /* else it would time the others */
        thread_adapter_start(&w->learner.adapter, w->job, learner_threads(w->job), w->host->delay,
                             w->host->log);
    if (rc == OK)
        rc = publisher_init(&w->publisher, w->world, WORLD_DRIVER,
                            w->job->slices > 1 ? 0 : worker_floats_most(w), w->strategy->extras,
                            &w->arena);
    return rc;
}

/* The slice of the model that this worker expects: the view says which it has. */
static size_t expected_slice(const struct worker *w)
{
    return w->job->slices > 1 ? w->world->self % w->job->slices : SLICE_ALL;
}

static int open_learner(struct worker *w)
{
    const struct open_watch watch = {w, worker_report_opening};
    int rc = strategy_find(w->job, &w->strategy, &w->traits, &w->err);
    w->progress = progress_of(&w->traits);
    /* Learners that share a workspace take turns, each with all threads. */
    kernels_set_threads(w->host->ws ? (int)w->job->threads : learner_threads(w->job));
    if (rc == OK)
        rc = open_data(w, &watch);
    if (rc == OK)
        rc = worker_begin_stage(w, "net and kernels");
    if (rc == OK)
        rc = open_net(w, expected_slice(w), &watch);
    return rc == OK ? make_learner(w) : rc;
}

static int end_warming(struct worker *w);

/* The net and the learner of another slice, in place of those that there are. */
static int open_other_slice(struct worker *w, size_t slice)
{
    struct member *m = &w->member;
    int rc = end_warming(w);
    if (rc != OK)
        return rc;
    atomic_store(&w->group.work.busy, false);
    if (m->world && w->strategy->close)
        w->strategy->close(m);
    lanes_release(&m->lanes);
    *m = (struct member){0};
    publisher_release(&w->publisher);
    learner_stop(&w->learner);
    workspace_free(w->data.own_ws);
    w->data.own_ws = NULL;
    arena_release(&w->arena);
    arena_init(&w->arena);
    w->learner = (struct learner){0};
    w->extras = (struct worker_extras){.here = false};
    w->opening.late = true; /* a peer has the state, */
    rc = open_net(w, slice, NULL);
    return rc == OK ? make_learner(w) : rc;
}

int worker_take_seat(struct worker *w)
{
    const struct view *view = group_view(&w->group);
    uint32_t seat = view_seat(view, w->world->self);
    if (w->job->slices == 1 || seat == VIEW_NO_SEAT)
        return OK;
    size_t slice = seat % w->job->slices;
    bool first = group_first_view(&w->group)->number == 1;
    if (slice == w->data.ws->slice.index)
        return OK;
    log_info(w->host->log, "worker %u has slice %zu of %u", w->world->self, slice, w->job->slices);
    int rc = open_other_slice(w, slice);
    if (rc == OK && first && !w->opening.resumes)
        net_init(w->data.ws->train, w->job->seed, &w->learner.x, &w->learner.s);
    return rc;
}

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
    const struct learner *l = &w->learner;
    size_t vectors = 1 + (header->has_state ? l->optim.ops->states : 0) +
                     (header->has_extra ? w->strategy->extras : 0);
    size_t carried = carried_state_floats(l->carried.streams, l->carried.row);
    return vectors * model_table(w)->total + l->s.n + (header->has_carried ? carried : 0);
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

/* ---- waiting to be let in ---- */

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

static int end_warming(struct worker *w)
{
    int rc = w->warming ? world_join(w->world, w->warming, WORLD_FOREVER, &(int){0}) : OK;
    if (rc == OK)
        w->warming = NULL;
    return rc;
}

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
        rc = end_warming(w);
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

static int begin_slice(struct worker *w, int rc, const struct model_header *header)
{
    if (rc == OK)
        rc = end_warming(w);
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
        rc = end_warming(w);
    return take_start(w, rc, &header);
}

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
        .segments_hash = segments_hash(model_table(w)),
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

int worker_open(struct worker *w)
{
    int rc = await_welcome(w);
    if (rc == OK && w->opening.checks && w->host->check_address)
        rc = worker_begin_stage(w, "connections");
    if (rc == OK && w->opening.checks && w->host->check_address)
        rc = connectivity_check(w->world, w->host, &w->err);
    if (rc == OK)
        rc = open_learner(w);
    return rc;
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
    return rc == OK ? end_warming(w) : rc;
}
