/* The driver's main task: waits for what members say (driver_book.c), hands out events (it alone),
 * and ends the run. The group's server, the keeper and the strategy's part are tasks
 * beside it. */
#include "train/driver.h"

#include "wire/post.h"

#include <stdlib.h>
#include <string.h>

#define FORM_TIMEOUT (60 * WORLD_SECOND)
#define TICK         (WORLD_SECOND / 10)
#define LAST_WORDS   (WORLD_SECOND / 2)

enum { REPLACE_WINDOW_S = 60, REPLACE_TIMES = 5 }; /* so often the workers in so long */

void driver_want_stop(struct driver *d, const char *reason)
{
    const char *none = NULL;
    atomic_compare_exchange_strong(&d->reason, &none, reason);
}

int driver_send(struct driver *d, uint32_t node, enum wire_kind kind, const struct buf *bytes)
{
    static const struct buf nothing;
    return wire_post_buf(d->world, node, kind, 0, bytes ? bytes : &nothing);
}

/* Has everybody who can be reached been told? */
static bool send_to_all(struct driver *d, enum wire_kind kind)
{
    const struct view *view = group_view(&d->group);
    bool told = true;
    for (size_t i = 0; view && i < view->count; i++) {
        int rc = driver_send(d, view->node[i], kind, NULL);
        told &= rc == OK || rc == ERR_PEER;
    }
    return told;
}

static int on_done(struct driver *d, const struct message *m)
{
    const struct view *view = group_view(&d->group);
    struct cut in = {m->data, m->len, false};
    int status = (int)cut_u32(&in);
    char text[ERR_TEXT_MAX];
    cut_text(&in, text, sizeof text);
    struct course course;
    course_decode(&in, &course);
    bool whole = cut_done(&in);
    bool under_way = view || d->before.view > 0;
    if (under_way && whole && status != OK && !train_ends_the_run(d->job, status)) {
        memcpy(d->lost, text, sizeof text); /* it may have been given up already */
        return OK;
    }
    if (view && view_rank(view, m->from) < 0)
        return OK; /* a stranger's, or of one that has been given up */
    if (!whole)
        return err_set(d->err, ERR_PROTOCOL, "worker %u: its last word cannot be read", m->from);
    if (status != OK)
        return err_set(d->err, status, "%s", text);
    members_add(&d->done, m->from);
    return OK;
}

/* What the last of them may have said is still to be read. */
static int all_lost(struct driver *d)
{
    const struct wait_for word = wire_from(WORLD_ANY, WIRE_DONE);
    struct wake wake;
    while (world_wait(d->world, &word, 1, world_now(d->world) + WORLD_SECOND / 1000, &wake) == OK) {
        int rc = on_done(d, wake.msg);
        message_unref(wake.msg);
        if (rc != OK)
            return rc;
    }
    d->unseen = !d->lost[0];
    return err_set(d->err, ERR_PEER, "all workers are lost%s%s", d->lost[0] ? ": " : "", d->lost);
}

/* A task beside this one has ended. The keeper's end is the run's; the others end by being
 * cancelled, unless something broke them. */
static int on_task_end(struct driver *d, struct task **task, const char *what)
{
    int result;
    world_join(d->world, *task, WORLD_FOREVER, &result);
    *task = NULL;
    if (task == &d->keeper.task && result == OK) {
        d->kept = true;
        return OK;
    }
    if (task == &d->leader_task && result == ERR_PEER)
        return all_lost(d);
    const char *why = task == &d->keeper.task ? keeper_says(&d->keeper, result) : NULL;
    return err_set(d->err, result != OK ? result : ERR_BUG, "the driver's %s ended: %s", what,
                   why ? why : status_text(result));
}

/* One wait, one thing done. */
static int turn(struct driver *d)
{
    uint64_t seen = world_raised(d->world, SIGNAL_GROUP);
    struct wait_for set[WORLD_WAITS_MAX] = {
        events_wait(&d->events),
        wire_from(WORLD_ANY, WIRE_COMMITTED),
        wire_from(WORLD_ANY, WIRE_DONE),
        {.kind = WAIT_SIGNAL, .signal = SIGNAL_GROUP, .seen = seen},
        {.kind = WAIT_TASK, .task = d->server.task},
    };
    int n = 5, leader = -1;
    if (d->leader_task) {
        leader = n;
        set[n++] = (struct wait_for){.kind = WAIT_TASK, .task = d->leader_task};
    }
    if (d->keeper.task)
        set[n++] = (struct wait_for){.kind = WAIT_TASK, .task = d->keeper.task};
    struct wake wake;
    int rc = world_wait(d->world, set, n, world_now(d->world) + TICK, &wake);
    if (rc == ERR_TIMEOUT)
        return OK;
    if (rc != OK)
        return err_set(d->err, rc, "the driver was cancelled");
    if (wake.which == 0) {
        d->options->line(d->options->user, events_line(wake.msg));
    } else if (wake.which == 1) {
        driver_on_committed(d, wake.msg);
        driver_tell_progress(d);
    } else if (wake.which == 2) {
        rc = on_done(d, wake.msg);
    }
    if (wake.which < 3)
        message_unref(wake.msg);
    if (wake.which == 4)
        return on_task_end(d, &d->server.task, "group");
    if (wake.which == leader)
        return on_task_end(d, &d->leader_task, "part in the strategy");
    return wake.which > 4 ? on_task_end(d, &d->keeper.task, "keeper of models") : rc;
}

/* Whoever has ended cannot come any more. What it may have said before is read first. */
static int check_lost(struct driver *d, int64_t *since)
{
    if (!d->options->lost || !d->options->lost(d->options->user))
        return OK;
    if (*since == WORLD_FOREVER)
        *since = world_now(d->world);
    if (world_now(d->world) - *since < LAST_WORDS)
        return OK;
    return err_set(d->err, ERR_PEER, "a worker ended before training began%s%s",
                   d->lost[0] ? ": " : "", d->lost);
}

/* Another may have taken the run up at the same moment, or since. */
static int check_replaced(struct driver *d)
{
    double t = events_seconds(&d->events);
    if (t >= d->next_look) {
        driver_replaced(d);
        d->next_look = t + 1;
    }
    return atomic_load(&d->outranked)
               ? err_set(d->err, ERR_FENCED, "a later driver has taken this run over")
               : OK;
}

/* Wait for the first view, with events going out meanwhile. */
static int form(struct driver *d)
{
    int64_t lost_since = WORLD_FOREVER;
    double s = d->options->patience_s;
    int64_t patience = s > 0 ? (int64_t)(s * WORLD_SECOND) : FORM_TIMEOUT;
    atomic_store(&d->stirred, world_now(d->world));
    while (!group_view(&d->group)) {
        int rc = check_replaced(d);
        if (rc == OK)
            rc = turn(d);
        if (rc == OK)
            rc = check_lost(d, &lost_since);
        if (rc != OK)
            return rc;
        if (d->options->stop && atomic_load(d->options->stop))
            return err_set(d->err, ERR_STOP, "interrupted before training began");
        if (world_now(d->world) - atomic_load(&d->stirred) > patience)
            return err_set(d->err, ERR_TIMEOUT,
                           "not all of %u workers came: nobody has stirred for %g s",
                           d->job->workers, world_seconds(patience));
    }
    return OK;
}

/* Members are told that the run is to end, and so are those who come in after that: each view's. */
static void check_stop(struct driver *d, const struct view *view)
{
    const Paceline__Stop *stop = d->job->stop;
    if (d->options->stop && atomic_load(d->options->stop))
        driver_want_stop(d, "interrupted");
    if (stop->has_seconds && events_seconds(&d->events) >= stop->seconds)
        driver_want_stop(d, "seconds");
    if ((atomic_load(&d->reason) || d->complete) && d->stop_sent < view->number) {
        atomic_store(&d->group.stop, true);
        d->stop_sent = send_to_all(d, WIRE_STOP) ? view->number : 0;
    }
}

/* Where the job says from how many to how many workers there may be, lost ones are replaced; but
 * something that kills them as fast as they come is not fed for ever. */
static void check_workers(struct driver *d)
{
    uint32_t gone = atomic_exchange(&d->gone, 0);
    double t = events_seconds(&d->events);
    if (gone == 0 || !d->job->has_workers_max || d->stop_sent > 0)
        return;
    if (t - d->replacing_since > REPLACE_WINDOW_S) {
        d->replacing_since = t;
        d->replaced = 0;
    }
    if (d->replaced + gone > REPLACE_TIMES * job_workers_max(d->job)) {
        log_error(d->host->log, "%u workers lost in %.0f s: for now no more are started",
                  d->replaced + gone, t - d->replacing_since);
        return;
    }
    d->replaced += gone;
    int rc = world_want_nodes(d->world, gone);
    if (rc != OK)
        log_warn(d->host->log, "no worker for one that is lost: %s", status_text(rc));
}

/* Somebody has said how many workers there are to be: within what the job allows. Those that are
 * too many are asked to leave, and may stand by; of those that lack, who stands by comes first, and
 * the host is asked for the others. */
static void check_wanted(struct driver *d, const struct view *view)
{
    uint32_t n = d->options->workers ? atomic_load(d->options->workers) : 0;
    uint32_t least = d->job->has_workers_min ? d->job->workers_min : 1;
    uint32_t most = job_workers_max(d->job), standing = atomic_load(&d->server.standing);
    if (n == d->wanted || d->stop_sent)
        return;
    d->wanted = n;
    if (!d->job->has_workers_max || !strategy_joinable(d->strategy, d->job)) {
        log_warn(d->host->log,
                 "%u workers are wanted, but the job does not let their number change", n);
        return;
    }
    n = n == 0 || n > most ? most : n < least ? least : n;
    log_info(d->host->log, "%u workers are wanted from now on, of %zu", n, view->count);
    server_want(&d->server, n);
    if (view->count + standing < n &&
        world_want_nodes(d->world, n - (uint32_t)view->count - standing) != OK)
        log_warn(d->host->log, "no more workers can be had");
}

/* Is the model of the checkpoint before still to come? What belongs to it is told when it is asked
 * for, so that the next is asked for when it has come, or who was asked is gone; or else after a
 * minute more, since a run without checkpoints is worse than a book that is a little newer. */
static bool awaits_checkpoint(const struct driver *d, const struct view *view, double t)
{
    enum { PATIENCE = 60 };
    return d->awaits_checkpoint && t < d->next_checkpoint + PATIENCE &&
           atomic_load(&d->keeper.taken) == d->taken_before &&
           (d->checkpoint_of == WORLD_DRIVER || view_rank(view, d->checkpoint_of) >= 0);
}

/* Ask for a checkpoint, from whoever has the model, when it is time for one. */
static void check_checkpoint(struct driver *d, const struct view *view)
{
    double every = d->job->checkpoint->every_seconds, t = events_seconds(&d->events);
    if (!d->options->dir || every <= 0 || t < d->next_checkpoint || awaits_checkpoint(d, view, t))
        return;
    if (d->next_checkpoint > 0 && view->count > 0)
        driver_want_model(d, MODEL_CHECKPOINT);
    d->next_checkpoint = t + every;
}

/* Who has come gets leases; who is gone leaves some. What it has said before it went is heard
 * first: it lies here already, since that came before the news. */
static void check_leases(struct driver *d, const struct view *view)
{
    const struct wait_for report = wire_from(WORLD_ANY, WIRE_COMMITTED);
    struct leases *leases = &d->leases;
    struct wake wake;
    if (!leases->opened || view->number == leases->view)
        return;
    leases->view = view->number;
    leases_welcome(leases, view);
    const struct members gone = leases_orphans(leases, view);
    while (members_count(&gone) > 0 &&
           world_wait(d->world, &report, 1, world_now(d->world), &wake) == OK) {
        driver_on_committed(d, wake.msg);
        message_unref(wake.msg);
    }
    leases_take_back(leases, &gone);
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
    driver_want_model(d, MODEL_FINAL);
}

/* Where workers run free the driver's part serves them until their loops have ended. */
static void let_leader_finish(struct driver *d, const struct view *view)
{
    if (!d->leader_task || !strategy_runs_free(d->strategy, d->job) ||
        atomic_load(&d->leader.finish) || view->count == 0 || !all_done(d, view))
        return;
    driver_tell_leases(d, true);
    atomic_store(&d->handing_over, true);
    atomic_store(&d->leader.finish, true);
    world_raise(d->world, SIGNAL_GROUP);
}

/* Until the final model is kept and every member's loop has ended. */
static int run(struct driver *d)
{
    int rc = form(d);
    if (rc == OK)
        rc = driver_start(d, group_first_view(&d->group));
    while (rc == OK) {
        const struct view *view = group_view(&d->group);
        rc = check_replaced(d);
        if (rc != OK)
            return rc;
        if (d->kept && all_done(d, view))
            return OK;
        if (view->count == 0 && !d->kept && !atomic_load(&d->handing_over))
            return all_lost(d);
        check_leases(d, view);
        check_stop(d, view);
        check_workers(d);
        check_wanted(d, view);
        check_checkpoint(d, view);
        ask_for_model(d, view);
        let_leader_finish(d, view);
        rc = turn(d);
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

/* A reason to end early is one only when the run had not come to its end by itself. */
static const char *reason_of(struct driver *d)
{
    const Paceline__Stop *stop = d->job->stop;
    const struct course *course = &d->keeper.judged;
    const char *early = atomic_load(&d->reason);
    if (!strategy_done(d->job, course, d->corpus->set[SET_TRAIN].count))
        return early ? early : "stopped";
    return stop->has_steps && course->steps >= stop->steps ? "steps" : "epochs";
}

static void fill_report(struct driver *d, struct train_report *report)
{
    const struct objectives *o = &d->keeper.objectives;
    const struct course *course = &d->keeper.judged;
    *report = (struct train_report){
        .reason = reason_of(d),
        .has_validation = !d->over && d->corpus->set[SET_VALIDATION].count > 0,
        .has_test = !d->over && d->corpus->set[SET_TEST].count > 0,
        .validation_error = o->last[SET_VALIDATION].error,
        .test_error = o->last[SET_TEST].error,
        .validation_loss = o->last[SET_VALIDATION].loss,
        .test_loss = o->last[SET_TEST].loss,
        .epochs = (double)course->place / (double)d->corpus->set[SET_TRAIN].count,
        .samples = d->ledger.used - d->resumed.used,
        .used = d->ledger.used,
        .repeated = d->ledger.repeated,
        .missed = d->ledger.missed,
        .wall_s = events_seconds(&d->events),
        .seed = d->job->seed,
    };
}

/* What is left of a run that failed: its last event says so. */
static void tell_failure(struct driver *d)
{
    cJSON *event = events_new(&d->events, "end");
    cJSON_AddStringToObject(event, "reason", "failed");
    cJSON_AddStringToObject(event, "error", d->err ? d->err->text : "");
    events_emit(&d->events, event);
}

/* To those who stand by, too. */
static void say_bye(struct driver *d)
{
    const struct roster *roster = &d->server.roster;
    send_to_all(d, WIRE_BYE);
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].waits || roster->member[i].back)
            driver_send(d, roster->member[i].node, WIRE_BYE, NULL);
}

/* The tasks end one after another; what made the run fail first is what is told. */
static int close_driver(struct driver *d, int rc, struct train_report *report)
{
    int leader = OK;
    if (d->leader_task)
        world_cancel(d->world, d->leader_task);
    world_end_task(d->world, &d->keeper.task); /* it has ended, or what broke the run ends it */
    bootstrap_give_stop(&d->giver);
    reach_stop(d->reach);
    if (d->leader_task)
        world_join(d->world, d->leader_task, WORLD_FOREVER, &leader);
    publisher_release(&d->to_keeper);
    if (rc == OK && leader != OK && leader != ERR_CANCELLED)
        rc = err_set(d->err, leader, "the driver's part ended: %s", status_text(leader));
    server_stop(&d->server);                /* before anybody goes, which would be a death to it */
    if (d->group.world && rc != ERR_FENCED) /* else it is not over: a later driver has it */
        say_bye(d);
    if (d->events.world)
        ledger_close(&d->ledger);
    if (rc == OK) {
        fill_report(d, report);
        train_report_event(&d->events, report);
    } else if (d->events.world) {
        tell_failure(d);
    }
    if (d->events.world)
        drain(d);
    /* In good order: nobody is to be waited for. Workers that said nothing may be well, and it is
     * this driver that was cut off: they go on, and call the next one. */
    if (rc != ERR_CANCELLED && d->events.world && !d->over && !d->unseen)
        driver_leave(d);
    tracer_stop(&d->tracer, d->host->log);
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
    if (host->watch)
        host->watch->driver(host->watch->user, d);
    int rc = driver_open(d);
    if (rc == OK && !d->over)
        rc = run(d);
    rc = close_driver(d, rc, report);
    if (host->watch)
        host->watch->driver(host->watch->user, NULL);
    lanes_release(&d->leader.lanes);
    if (d->group.world)
        group_release(&d->group);
    buf_release(&d->welcome);
    buf_release(&d->welcome_late);
    snapshot_close(&d->keeper.snapshot);
    keeper_release(&d->keeper);
    free(d->resumed.leases);
    workspace_free(d->own_ws);
    corpus_close(&d->own_corpus);
    arena_release(&d->arena);
    free(d);
    return rc;
}
