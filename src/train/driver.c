/* The driver's node: forms the group, gives the joint model its objectives, keeps the book of
 * exchanges, and ends the run. Its main task alone hands out events; the group's server, the
 * strategy's part and the objectives are tasks beside it. */
#include "group/server.h"
#include "job/text.h"
#include "tensor/kernels.h"
#include "train/greeting.h"
#include "train/ledger.h"
#include "train/model.h"
#include "train/objectives.h"
#include "train/progress.h"
#include "train/train.h"
#include "wire/catalogue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORM_TIMEOUT (60 * WORLD_SECOND)
#define TICK         (WORLD_SECOND / 10)

struct driver {
    struct world *world;
    const struct train_host *host;
    const struct train_options *options;
    const Paceline__Job *job;
    const struct strategy_ops *strategy;
    struct arena arena;
    struct corpus own_corpus;
    struct workspace *own_ws;
    const struct corpus *corpus;
    struct workspace *ws;
    struct events events;
    struct objectives objectives;
    struct ledger ledger;
    struct progress_meter meter;
    _Atomic double last_error; /* for the progress; < 0: none yet */
    struct group group;
    struct server server;
    struct hello own; /* what a worker's hello must agree with */
    struct buf welcome;
    struct leader leader;
    struct publisher publisher; /* from the leader to the objectives */
    uint64_t evaluate_every;
    float *landing; /* where models for the objectives come in */
    struct vec x, s;
    struct course judged; /* where the model last evaluated stood */
    struct task *leader_task, *objectives_task;
    _Atomic(const char *) reason; /* why it ends before its time; NULL: it does not */
    bool stop_sent;
    struct members done;
    uint32_t asked; /* for its model, at the end; WORLD_ANY: nobody yet */
    struct err *err;
};

/* The first reason stands. */
static void want_stop(struct driver *d, const char *reason)
{
    const char *none = NULL;
    atomic_compare_exchange_strong(&d->reason, &none, reason);
}

static int send_to(struct driver *d, uint32_t node, enum wire_kind kind, const struct buf *bytes)
{
    size_t len = bytes ? bytes->len : 0;
    struct message *m = message_new(wire_tag(kind, 0, 0, 0), 0, len);
    if (!m)
        return ERR_NOMEM;
    if (len)
        memcpy(m->data, bytes->data, len);
    int rc = world_send(d->world, node, m, CLASS_CONTROL);
    if (rc == ERR_FULL)
        message_unref(m);
    return rc;
}

static void send_to_all(struct driver *d, enum wire_kind kind)
{
    const struct view *view = group_view(&d->group);
    for (size_t i = 0; view && i < view->count; i++)
        send_to(d, view->node[i], kind, NULL);
}

/* ---- what the group's server asks of us, on its task ---- */

static void on_arrived(void *user, uint32_t node)
{
    struct driver *d = user;
    send_to(d, node, WIRE_WELCOME, &d->welcome);
}

static int on_hello(void *user, uint32_t node, const void *bytes, size_t len, char *address,
                    struct err *err)
{
    struct driver *d = user;
    struct cut in = {bytes, len, false};
    struct hello hello;
    (void)node;
    if (hello_read(&in, &hello) != OK)
        return err_set(err, ERR_PROTOCOL, "its hello cannot be read");
    int rc = hello_check(&hello, &d->own, err);
    if (rc == OK)
        memcpy(address, hello.address, sizeof hello.address);
    return rc;
}

static void on_member(void *user, uint32_t node, const char *what, uint32_t view)
{
    struct driver *d = user;
    enum log_level level = what[0] == 'j' ? LOG_INFO : LOG_WARN;
    log_write(d->host->log, level, "worker %u: %s (view %u)", node, what, view);
    cJSON *event = events_new(&d->events, "member");
    cJSON_AddNumberToObject(event, "node", node);
    cJSON_AddStringToObject(event, "what", what);
    cJSON_AddNumberToObject(event, "view", view);
    events_emit(&d->events, event);
}

/* ---- objectives, on their task ---- */

static int judge(struct driver *d, const struct model_note *note)
{
    if (note->final && d->objectives.evaluated > 0 && d->judged.exchanges == note->course.exchanges)
        return OK; /* it has just been seen */
    vec_import(&d->x, vec_all(&d->x), d->landing);
    vec_import(&d->s, vec_all(&d->s), d->landing + d->x.n);
    d->judged = note->course;
    int rc =
        objectives_evaluate(&d->objectives, &d->x, &d->s, note->course.place, note->course.steps);
    enum corpus_set set = d->corpus->set[SET_VALIDATION].count ? SET_VALIDATION : SET_TEST;
    atomic_store(&d->last_error, d->objectives.last[set].error);
    if (rc == ERR_STOP)
        want_stop(d, "error");
    return rc == ERR_STOP ? OK : rc;
}

static int objectives_main(void *arg)
{
    struct driver *d = arg;
    kernels_set_threads((int)d->job->threads);
    for (;;) {
        struct model_note note;
        int rc = model_receive(d->world, d->landing, d->x.n + d->s.n, &note, WORLD_FOREVER);
        if (rc == OK)
            rc = judge(d, &note);
        else if (rc == ERR_PEER)
            continue; /* its sender died on the way; another will send */
        if (rc != OK || note.final)
            return rc;
    }
}

/* ---- the strategy's part, on its task ---- */

static int on_leader_committed(struct leader *l, const struct exchange *e)
{
    struct driver *d = l->train;
    bool last = strategy_done(l->job, &l->course, l->records);
    if (!last && l->course.exchanges % d->evaluate_every == 0)
        publisher_start(&d->publisher, &l->course, false, &l->x, &l->s);
    return exchange_tally(e)->stop_votes > 0 ? ERR_STOP : OK;
}

static int leader_main(void *arg)
{
    struct driver *d = arg;
    int rc = d->strategy->driver(&d->leader);
    if (rc == OK)
        rc = publisher_finish(&d->publisher, WORLD_FOREVER);
    if (rc == OK) {
        publisher_start(&d->publisher, &d->leader.course, true, &d->leader.x, &d->leader.s);
        rc = publisher_finish(&d->publisher, WORLD_FOREVER);
    }
    if (rc != OK) /* no final model will come: the objectives, and with them the run, end now */
        world_cancel(d->world, d->objectives_task);
    return rc;
}

static int start_leader(struct driver *d, const struct view *view)
{
    d->leader = (struct leader){
        .world = d->world,
        .group = &d->group,
        .job = d->job,
        .arena = &d->arena,
        .records = d->corpus->set[SET_TRAIN].count,
        .committed = on_leader_committed,
        .train = d,
    };
    for (size_t i = 0; i < view->count; i++)
        members_add(&d->leader.course.who, view->node[i]);
    if (vec_init(&d->leader.x, &d->arena, d->x.n) != OK ||
        vec_init(&d->leader.s, &d->arena, d->s.n) != OK ||
        publisher_init(&d->publisher, d->world, WORLD_DRIVER, d->x.n + d->s.n, &d->arena) != OK)
        return ERR_NOMEM;
    vec_copy(&d->leader.x, &d->x, vec_all(&d->x));
    vec_copy(&d->leader.s, &d->s, vec_all(&d->s));
    return world_spawn(d->world, "leader", leader_main, d, &d->leader_task);
}

/* ---- setting up ---- */

static int open_model(struct driver *d)
{
    kernels_set_threads((int)d->job->threads);
    d->corpus = d->host->corpus;
    d->ws = d->host->ws;
    int rc = OK;
    if (!d->corpus) {
        rc = corpus_open(d->job, &d->own_corpus, d->err);
        d->corpus = &d->own_corpus;
    }
    if (rc == OK && !d->ws) {
        rc = workspace_create(d->job, d->corpus, d->host->log, &d->own_ws, d->err);
        d->ws = d->own_ws;
    }
    if (rc != OK)
        return rc;
    size_t x = net_segments(d->ws->train)->total, s = net_state_segments(d->ws->train)->total;
    d->landing = arena_array(&d->arena, x + s, float);
    if (!d->landing || vec_init(&d->x, &d->arena, x) != OK || vec_init(&d->s, &d->arena, s) != OK)
        return err_set(d->err, ERR_NOMEM, "out of memory for %zu parameters", x);
    net_init(d->ws->train, d->job->seed, &d->x, &d->s);
    d->own = (struct hello){
        .version = WIRE_VERSION,
        .job_hash = job_hash(d->job),
        .data_hash = d->corpus->hash,
        .segments_hash = segments_hash(net_segments(d->ws->train)),
    };
    return OK;
}

static int write_welcome(struct driver *d)
{
    struct buf text = {0};
    text_write(&d->job->base, &text);
    buf_put_u8(&text, 0);
    if (!text.failed) {
        struct welcome welcome = {(char *)text.data, d->host->timing.silence_max > WORLD_SECOND};
        welcome_encode(&welcome, &d->welcome);
    }
    bool failed = text.failed || d->welcome.failed;
    buf_release(&text);
    return failed ? err_set(d->err, ERR_NOMEM, "job: out of memory") : OK;
}

static void emit_start(struct driver *d)
{
    char hash[2][20];
    snprintf(hash[0], sizeof hash[0], "%016" PRIx64, d->own.job_hash);
    snprintf(hash[1], sizeof hash[1], "%016" PRIx64, d->own.data_hash);
    cJSON *event = events_new(&d->events, "start");
    cJSON_AddStringToObject(event, "job", d->job->name);
    cJSON_AddStringToObject(event, "job_hash", hash[0]);
    cJSON_AddStringToObject(event, "data_hash", hash[1]);
    cJSON_AddNumberToObject(event, "protocol", WIRE_VERSION);
    cJSON_AddStringToObject(event, "strategy", d->strategy->name);
    cJSON_AddStringToObject(event, "kernels", d->ws->kernels->name);
    cJSON_AddStringToObject(event, "isa", kernels_isa());
    cJSON_AddNumberToObject(event, "nodes", d->job->workers);
    cJSON_AddNumberToObject(event, "parameters", (double)d->x.n);
    events_emit(&d->events, event);
}

static int start_group(struct driver *d)
{
    const struct roster_options roster = {
        .workers = d->job->workers,
        .driver_takes_part = d->strategy->driver != NULL,
        .silence_max = d->host->timing.silence_max,
        .stall_max = d->host->timing.stall_max,
    };
    const struct server_hooks hooks = {on_arrived, on_hello, on_member, d};
    group_init(&d->group, d->world, d->host->log, &d->host->timing);
    int rc = server_start(&d->server, &d->group, &roster, &hooks);
    if (rc == OK)
        rc = world_want_nodes(d->world, d->job->workers);
    return rc == OK ? OK
                    : err_set(d->err, rc, "%u workers cannot be had: %s", d->job->workers,
                              status_text(rc));
}

static int open_driver(struct driver *d)
{
    int rc = strategy_find(d->job, &d->strategy, d->err);
    if (rc == OK)
        rc = open_model(d);
    if (rc == OK)
        rc = write_welcome(d);
    if (rc != OK)
        return rc;
    events_init(&d->events, d->world);
    objectives_init(&d->objectives, d->world, d->job, d->corpus, d->ws, &d->events,
                    d->host->step_seconds);
    d->ledger = (struct ledger){
        .events = &d->events,
        .log = d->host->log,
        .strategy = d->strategy->name,
    };
    emit_start(d);
    return start_group(d);
}

/* ---- the main loop ---- */

static int on_done(struct driver *d, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    int status = (int)cut_u32(&in);
    char text[ERR_TEXT_MAX];
    cut_text(&in, text, sizeof text);
    struct course course;
    course_decode(&in, &course);
    if (!cut_done(&in))
        return err_set(d->err, ERR_PROTOCOL, "worker %u: its last word cannot be read", m->from);
    if (status != OK)
        return err_set(d->err, status, "%s", text);
    members_add(&d->done, m->from);
    return OK;
}

static void on_committed(struct driver *d, const struct message *m)
{
    struct cut in = {m->data, m->len, false};
    struct committed report;
    if (committed_decode(&in, &report) == OK)
        ledger_report(&d->ledger, &report);
}

static void tell_progress(struct driver *d)
{
    struct train_progress p;
    const struct view *view = group_view(&d->group);
    if (!view || !d->options->progress ||
        !progress_due(&d->meter, &d->events, &d->ledger, d->job, d->corpus->set[SET_TRAIN].count,
                      &p))
        return;
    p.workers = (uint32_t)view->count;
    p.error = atomic_load(&d->last_error);
    d->options->progress(d->options->user, &p);
}

/* One wait, one thing done. ERR_END: the objectives have judged the final model. */
static int turn(struct driver *d)
{
    uint64_t seen = world_raised(d->world, SIGNAL_GROUP);
    const struct wait_for set[] = {
        events_wait(&d->events),
        {.kind = WAIT_MESSAGE,
         .from = WORLD_ANY,
         .tag = wire_tag(WIRE_COMMITTED, 0, 0, 0),
         .mask = WIRE_KIND_MASK},
        {.kind = WAIT_MESSAGE,
         .from = WORLD_ANY,
         .tag = wire_tag(WIRE_DONE, 0, 0, 0),
         .mask = WIRE_KIND_MASK},
        {.kind = WAIT_SIGNAL, .signal = SIGNAL_GROUP, .seen = seen},
        {.kind = WAIT_TASK, .task = d->objectives_task},
    };
    struct wake wake;
    int n = d->objectives_task ? 5 : 4;
    int rc = world_wait(d->world, set, n, world_now(d->world) + TICK, &wake);
    if (rc == ERR_TIMEOUT)
        return OK;
    if (rc != OK)
        return err_set(d->err, rc, "the driver was cancelled");
    if (wake.which == 0) {
        d->options->line(d->options->user, events_line(wake.msg));
    } else if (wake.which == 1) {
        on_committed(d, wake.msg);
        tell_progress(d);
    } else if (wake.which == 2) {
        rc = on_done(d, wake.msg);
    }
    if (wake.which < 3)
        message_unref(wake.msg);
    return wake.which == 4 ? ERR_END : rc;
}

/* Wait for the first view, with events going out meanwhile. */
static int form(struct driver *d)
{
    int64_t deadline = world_now(d->world) + FORM_TIMEOUT;
    while (!group_view(&d->group)) {
        int rc = turn(d);
        if (rc != OK)
            return rc;
        if (d->options->stop && atomic_load(d->options->stop))
            return err_set(d->err, ERR_STOP, "interrupted before training began");
        if (world_now(d->world) > deadline)
            return err_set(d->err, ERR_TIMEOUT, "not all of %u workers came within a minute",
                           d->job->workers);
    }
    return OK;
}

static void check_stop(struct driver *d)
{
    const Paceline__Stop *stop = d->job->stop;
    if (d->options->stop && atomic_load(d->options->stop))
        want_stop(d, "interrupted");
    if (stop->has_seconds && events_seconds(&d->events) >= stop->seconds)
        want_stop(d, "seconds");
    if (atomic_load(&d->reason) && !d->stop_sent) {
        d->stop_sent = true;
        atomic_store(&d->group.stop, true);
        send_to_all(d, WIRE_STOP);
    }
}

/* When every loop has ended and the driver has no model itself, one member hands over its own; when
 * it dies on the way, the next. */
static void ask_for_model(struct driver *d, const struct view *view)
{
    if (d->strategy->driver || (d->asked != WORLD_ANY && view_rank(view, d->asked) >= 0))
        return;
    for (size_t i = 0; i < view->count; i++)
        if (!members_has(&d->done, view->node[i]))
            return;
    d->asked = view->node[0];
    send_to(d, d->asked, WIRE_WANT_MODEL, NULL);
}

static int run(struct driver *d)
{
    int rc = form(d);
    if (rc != OK)
        return rc;
    const struct view *view = group_view(&d->group);
    d->evaluate_every = objectives_every(d->job, d->corpus->set[SET_TRAIN].count,
                                         d->strategy->round(d->job) * view->count);
    rc = world_spawn(d->world, "objectives", objectives_main, d, &d->objectives_task);
    if (rc == OK && d->strategy->driver)
        rc = start_leader(d, view);
    while (rc == OK) {
        check_stop(d);
        view = group_view(&d->group);
        if (view->count == 0)
            return err_set(d->err, ERR_PEER, "all workers are lost");
        ask_for_model(d, view);
        rc = turn(d);
    }
    return rc == ERR_END ? OK : rc;
}

/* Every other task has ended, so all events are under way to us. */
static void drain(struct driver *d)
{
    for (;;) {
        struct wait_for event = events_wait(&d->events);
        struct wake wake;
        if (world_wait(d->world, &event, 1, world_now(d->world) + WORLD_SECOND / 1000, &wake) != OK)
            return;
        d->options->line(d->options->user, events_line(wake.msg));
        message_unref(wake.msg);
    }
}

static void fill_report(struct driver *d, struct train_report *report)
{
    const struct objectives *o = &d->objectives;
    const char *early = atomic_load(&d->reason);
    const struct course *course = &d->judged;
    uint64_t used = d->ledger.last.n ? d->ledger.used : course->place;
    *report = (struct train_report){
        .reason = early                      ? early
                  : d->job->stop->has_epochs ? "epochs"
                                             : "steps",
        .has_validation = d->corpus->set[SET_VALIDATION].count > 0,
        .has_test = d->corpus->set[SET_TEST].count > 0,
        .validation_error = o->last[SET_VALIDATION].error,
        .test_error = o->last[SET_TEST].error,
        .test_loss = o->last[SET_TEST].loss,
        .epochs = (double)course->place / (double)d->corpus->set[SET_TRAIN].count,
        .samples = used,
        .used = used,
        .missed = d->ledger.missed,
        .wall_s = events_seconds(&d->events),
        .seed = d->job->seed,
    };
}

/* The tasks end one after another; what made the run fail first is what is told. */
static int close_driver(struct driver *d, int rc, struct train_report *report)
{
    int leader = OK, judged = OK;
    if (rc != OK && d->leader_task)
        world_cancel(d->world, d->leader_task);
    if (rc != OK && d->objectives_task)
        world_cancel(d->world, d->objectives_task);
    if (d->leader_task)
        world_join(d->world, d->leader_task, WORLD_FOREVER, &leader);
    if (d->objectives_task)
        world_join(d->world, d->objectives_task, WORLD_FOREVER, &judged);
    publisher_release(&d->publisher);
    if (rc == OK && (leader != OK || judged != OK)) {
        rc = leader != OK ? leader : judged;
        err_set(d->err, rc, "the driver's part ended: %s", status_text(rc));
    }
    if (d->group.world)
        send_to_all(d, WIRE_BYE);
    server_stop(&d->server);
    if (d->events.world)
        ledger_close(&d->ledger);
    if (rc == OK) {
        fill_report(d, report);
        train_report_event(&d->events, report);
    }
    if (d->events.world)
        drain(d);
    return rc;
}

int train_drive(struct world *world, const struct train_host *host,
                const struct train_options *options, struct train_report *report, struct err *err)
{
    struct driver *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, ERR_NOMEM, "out of memory");
    d->world = world;
    d->host = host;
    d->options = options;
    d->job = options->job;
    d->asked = WORLD_ANY;
    atomic_store(&d->last_error, -1.0);
    d->err = err;
    arena_init(&d->arena);
    int rc = open_driver(d);
    if (rc == OK)
        rc = run(d);
    rc = close_driver(d, rc, report);
    if (d->group.world)
        group_release(&d->group);
    buf_release(&d->welcome);
    workspace_free(d->own_ws);
    corpus_close(&d->own_corpus);
    arena_release(&d->arena);
    free(d);
    return rc;
}
