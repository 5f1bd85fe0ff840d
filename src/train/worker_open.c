/* A worker before it says hello: it receives the welcome with the job, opens the data, and plans
 * the net. Also the net of another slice, if the view gives it another seat. */
#include "tensor/kernels.h"
#include "train/checkpoint.h"
#include "train/connectivity.h"
#include "train/memory_need.h"
#include "train/worker.h"
#include "wire/wire_send.h"

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
    const struct model_header none = {0};
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
    if (rc != OK)
        return rc;
    const struct model_layout layout = worker_layout(w, &none);
    return publisher_init(&w->publisher, w->world, WORLD_DRIVER,
                          w->job->slices > 1 ? 0 : model_floats_most(&layout), w->strategy->extras,
                          &w->arena);
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

/* The net and the learner of another slice, in place of those that there are. */
static int open_other_slice(struct worker *w, size_t slice)
{
    struct member *m = &w->member;
    int rc = worker_end_warming(w);
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
