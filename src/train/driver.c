/* The driver's main task: waits for what members say, keeps the book of exchanges, hands out events
 * (it alone), and ends the run. The group's server, the keeper and the strategy's part are tasks
 * beside it. */
#include "train/driver.h"

#include "wire/catalogue.h"

#include <stdlib.h>
#include <string.h>

#define FORM_TIMEOUT (60 * WORLD_SECOND)
#define TICK         (WORLD_SECOND / 10)

void driver_want_stop(struct driver *d, const char *reason)
{
    const char *none = NULL;
    atomic_compare_exchange_strong(&d->reason, &none, reason);
}

int driver_send(struct driver *d, uint32_t node, enum wire_kind kind, const struct buf *bytes)
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
        driver_send(d, view->node[i], kind, NULL);
}

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
    atomic_store(&d->keeper.missed, d->ledger.missed);
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
    p.error = atomic_load(&d->keeper.last_error);
    d->options->progress(d->options->user, &p);
}

/* One wait, one thing done. ERR_END: the keeper has taken the final model. */
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
        {.kind = WAIT_TASK, .task = d->keeper.task},
    };
    struct wake wake;
    int n = d->keeper.task && !d->kept ? 5 : 4;
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
        driver_want_stop(d, "interrupted");
    if (stop->has_seconds && events_seconds(&d->events) >= stop->seconds)
        driver_want_stop(d, "seconds");
    if (atomic_load(&d->reason) && !d->stop_sent) {
        d->stop_sent = true;
        atomic_store(&d->group.stop, true);
        send_to_all(d, WIRE_STOP);
    }
}

/* Ask for a checkpoint, from whoever has the model, when it is time for one. */
static void check_checkpoint(struct driver *d, const struct view *view)
{
    double every = d->job->checkpoint->every_seconds, t = events_seconds(&d->events);
    if (!d->options->dir || every <= 0 || t < d->next_checkpoint)
        return;
    if (d->next_checkpoint > 0) {
        if (train_workers_speak(d->job, d->strategy))
            driver_send(d, view->node[0], WIRE_WANT_MODEL, NULL);
        else
            atomic_store(&d->checkpoint_due, true);
    }
    d->next_checkpoint = t + every;
}

static bool all_done(const struct driver *d, const struct view *view)
{
    for (size_t i = 0; i < view->count; i++)
        if (!members_has(&d->done, view->node[i]))
            return false;
    return true;
}

/* When every loop has ended and the driver has no model itself, one member hands over its own; when
 * it dies on the way, the next. */
static void ask_for_model(struct driver *d, const struct view *view)
{
    if (!train_workers_speak(d->job, d->strategy) ||
        (d->asked != WORLD_ANY && view_rank(view, d->asked) >= 0))
        return;
    if (!all_done(d, view))
        return;
    d->asked = view->node[0];
    driver_send(d, d->asked, WIRE_WANT_MODEL, NULL);
}

/* Until the final model is kept and every member's loop has ended. */
static int run(struct driver *d)
{
    int rc = form(d);
    if (rc == OK)
        rc = driver_start(d, group_view(&d->group));
    while (rc == OK) {
        const struct view *view = group_view(&d->group);
        if (d->kept && all_done(d, view))
            return OK;
        if (view->count == 0)
            return err_set(d->err, ERR_PEER, "all workers are lost");
        check_stop(d);
        check_checkpoint(d, view);
        ask_for_model(d, view);
        rc = turn(d);
        d->kept |= rc == ERR_END;
        rc = rc == ERR_END ? OK : rc;
    }
    return rc;
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
    const struct objectives *o = &d->keeper.objectives;
    const char *early = atomic_load(&d->reason);
    const struct course *course = &d->keeper.judged;
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
    if (d->leader_task)
        world_cancel(d->world, d->leader_task);
    if (rc != OK && d->keeper.task)
        world_cancel(d->world, d->keeper.task);
    world_end_task(d->world, &d->giver_task);
    if (d->leader_task)
        world_join(d->world, d->leader_task, WORLD_FOREVER, &leader);
    if (d->keeper.task)
        world_join(d->world, d->keeper.task, WORLD_FOREVER, &judged);
    publisher_release(&d->to_keeper);
    publisher_release(&d->to_worker);
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
    atomic_store(&d->keeper.last_error, -1.0);
    d->err = err;
    arena_init(&d->arena);
    int rc = driver_open(d);
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
