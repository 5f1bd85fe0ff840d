/* The driver's main task. It handles the members' reports (driver_commits.c) and those of arriving
 * and departing workers (driver_first_view.c), emits all events, and ends the run. The group's
 * server, the model writer and the driver part are background tasks. */
#include "train/driver.h"
#include "train/bad_report.h"
#include "train/describe.h"
#include "train/driver_stop.h"

#include "base/plural.h"
#include "wire/wire_send.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TICK (WORLD_SECOND / 10)

enum { REPLACE_WINDOW_S = 60, REPLACE_TIMES = 5 }; /* replacements per worker in the window */

void driver_request_stop(struct driver *d, const char *reason)
{
    const char *none = NULL;
    atomic_compare_exchange_strong(&d->ending.reason, &none, reason);
}

int driver_send(struct driver *d, uint32_t node, enum wire_kind kind, const struct buf *bytes)
{
    static const struct buf nothing;
    return wire_send_buf(d->world, node, kind, 0, bytes ? bytes : &nothing);
}

/* A background task has ended. The run ends with the model writer. The other tasks end only when
 * they are cancelled, so any other end is an error. */
int driver_on_task_end(struct driver *d, struct task **task, const char *what)
{
    int result;
    world_join(d->world, *task, WORLD_FOREVER, &result);
    *task = NULL;
    if (task == &d->model_writer.task && result == OK) {
        d->ending.kept = true;
        return OK;
    }
    if (task == &d->part.task && result == ERR_PEER)
        return driver_lose_all(d);
    const char *why =
        task == &d->model_writer.task ? model_writer_set_samples(&d->model_writer, result) : NULL;
    if (why)
        return err_set(d->err, result, "%s", why);
    return err_set(d->err, result != OK ? result : ERR_BUG, "the driver's %s ended: %s", what,
                   status_text(result));
}

int driver_turn(struct driver *d)
{
    const struct wait_for changed = wait_signal(d->world, SIGNAL_GROUP);
    struct wait_for set[WORLD_WAITS_MAX] = {
        events_wait(&d->events),
        wire_from(WORLD_ANY, WIRE_COMMITTED),
        wire_from(WORLD_ANY, WIRE_DONE),
        wire_from(WORLD_ANY, WIRE_OPENING),
        wire_from(WORLD_ANY, WIRE_BAD_RECORD),
        wire_from(WORLD_ANY, WIRE_REJECTED),
        changed,
        {.kind = WAIT_TASK, .task = d->server.task},
    };
    const int messages = 6, server = 7;
    int n = 8, part_at = -1;
    if (d->part.task) {
        part_at = n;
        set[n++] = (struct wait_for){.kind = WAIT_TASK, .task = d->part.task};
    }
    if (d->model_writer.task)
        set[n++] = (struct wait_for){.kind = WAIT_TASK, .task = d->model_writer.task};
    struct wake wake;
    driver_report_bad_records(d);
    if (d->options->tick)
        d->options->tick(d->options->user);
    int rc = world_wait(d->world, set, n, world_now(d->world) + TICK, &wake);
    if (rc == ERR_TIMEOUT)
        return OK;
    if (rc != OK)
        return err_set(d->err, rc, "the driver was cancelled");
    if (wake.which == 0) {
        d->options->line(d->options->user, events_line(wake.msg));
    } else if (wake.which == 1) {
        driver_on_committed(d, wake.msg);
    } else if (wake.which == 2) {
        rc = driver_on_done(d, wake.msg);
    } else if (wake.which == 3) {
        driver_on_opening(d, wake.msg);
    } else if (wake.which == 4) {
        rc = driver_on_bad_record(d, wake.msg);
    } else if (wake.which == 5) {
        driver_on_rejected(d, wake.msg);
    }
    if (wake.which < messages)
        message_unref(wake.msg);
    if (wake.which == server)
        return driver_on_task_end(d, &d->server.task, "group");
    if (wake.which == part_at)
        return driver_on_task_end(d, &d->part.task, "part in the strategy");
    return wake.which > server ? driver_on_task_end(d, &d->model_writer.task, "model writer") : rc;
}

int driver_check_replaced(struct driver *d)
{
    double t = events_seconds(&d->events);
    if (t >= d->claim.next_look) {
        if (!driver_replaced(d) && d->options->dir)
            rundir_beat(d->options->dir);
        d->claim.next_look = t + 1;
    }
    return atomic_load(&d->claim.outranked)
               ? err_set(d->err, ERR_FENCED, "a later driver has taken this run over")
               : OK;
}

/* Replace lost workers where the job sets workers_max. A limit per minute stops the replacement
 * when a fault kills workers as fast as they start. */
static void check_workers(struct driver *d)
{
    uint32_t departed_count = atomic_exchange(&d->membership.missing, 0);
    double t = events_seconds(&d->events);
    if (departed_count == 0 || !d->job->has_workers_max || d->ending.stop_sent > 0)
        return;
    if (t - d->membership.replacing_since > REPLACE_WINDOW_S) {
        d->membership.replacing_since = t;
        d->membership.replaced = 0;
    }
    if (d->membership.replaced + departed_count > REPLACE_TIMES * job_workers_max(d->job)) {
        log_error(d->host->log, "%u worker%s lost in %.0f s: for now no more are started",
                  d->membership.replaced + departed_count,
                  plural(d->membership.replaced + departed_count, "s"),
                  t - d->membership.replacing_since);
        return;
    }
    d->membership.replaced += departed_count;
    int rc = driver_request_workers(d, departed_count);
    if (rc != OK)
        log_warn(d->host->log, "no worker for one that is lost: %s", status_text(rc));
}

/* The user has set the number of workers, within the job's limits, or it follows the batch. Surplus
 * workers are asked to leave and may stand by. Standby workers fill gaps first; the host is asked
 * for the rest. A host that follows the batch by itself does all of that: two that choose who
 * leaves would choose different workers. */
static void check_worker_count(struct driver *d, const struct view *view)
{
    uint32_t n = d->options->workers ? (uint32_t)atomic_load(d->options->workers) : 0;
    uint32_t least = d->job->has_workers_min ? d->job->workers_min : 1;
    uint32_t most = job_workers_max(d->job), standing = atomic_load(&d->server.standing);
    bool follows = n == 0;
    if (follows)
        n = driver_follow_batch(d, view);
    if (n == d->membership.target || d->ending.stop_sent)
        return;
    d->membership.target = n;
    if (!d->job->has_workers_max || !d->traits.joinable) {
        log_warn(d->host->log, "%u worker%s wanted, but the job does not let the number change", n,
                 plural(n, "s"));
        return;
    }
    n = n == 0 || n > most ? most : n < least ? least : n;
    log_info(d->host->log, "%u worker%s wanted from now on, of %zu", n, plural(n, "s"),
             view->count);
    if (follows && d->options->host_follows)
        return;
    server_want(&d->server, n);
    if (view->count + standing < n &&
        driver_request_workers(d, n - (uint32_t)view->count - standing) != OK)
        log_warn(d->host->log, "no more workers can be had");
}

/* May the model that this node was asked for still come? A slice without a seat shows none. */
static bool may_show(const struct driver *d, const struct view *view, uint32_t node)
{
    bool idle = d->job->slices > 1 && members_has(&view->leaves, node);
    return node == WORLD_DRIVER || (view_rank(view, node) >= 0 && !idle);
}

/* Is the model of the previous checkpoint still on its way? The lease table is copied at the
 * request, so the next request waits until that model has arrived or its worker is gone. After
 * another minute the request is repeated: a run without checkpoints is worse than a lease table
 * that is a little newer than its model. */
static bool awaits_checkpoint(const struct driver *d, const struct view *view, double t)
{
    enum { PATIENCE = 60 };
    uint32_t of = atomic_load(&d->requests.checkpoint_of);
    return d->requests.awaits_checkpoint &&
           t < d->requests.checkpoint_at + d->job->checkpoint->every_seconds + PATIENCE &&
           atomic_load(&d->model_writer.taken) == d->requests.taken_before && may_show(d, view, of);
}

static bool checkpoint_is_due(const struct driver *d, double t, uint64_t exchanges)
{
    double every = d->job->checkpoint->every_seconds;
    uint64_t n = d->job->checkpoint->every_exchanges, before = d->requests.checkpoint_exchanges;
    return (every > 0 && t >= d->requests.checkpoint_at + every) ||
           (n > 0 && exchanges > before && exchanges - before >= n);
}

/* Request a checkpoint from the holder of the model when it is time for one. */
static void check_checkpoint(struct driver *d, const struct view *view)
{
    double t = events_seconds(&d->events);
    uint64_t exchanges = d->ledger.last.progress.exchanges;
    bool begins = !d->requests.counts_from_here;
    if (!d->options->dir ||
        (!begins && (!checkpoint_is_due(d, t, exchanges) || awaits_checkpoint(d, view, t))))
        return;
    if (!begins && view->count > 0)
        driver_request_model(d, MODEL_CHECKPOINT);
    d->requests.counts_from_here = true;
    d->requests.checkpoint_at = t;
    d->requests.checkpoint_exchanges = exchanges;
}

/* Joiners get leases; leases of departed workers are reclaimed. A departed worker's last reports
 * are read first: they arrived before the view change. */
static void check_leases(struct driver *d, const struct view *view)
{
    const struct wait_for report = wire_from(WORLD_ANY, WIRE_COMMITTED);
    struct lease_server *leases = &d->leases;
    struct wake wake;
    if (!leases->opened || view->number == leases->view)
        return;
    leases->view = view->number;
    lease_server_welcome(leases, view);
    const struct members departed_count = lease_server_orphans(leases, view);
    while (!members_empty(&departed_count) &&
           world_wait(d->world, &report, 1, world_now(d->world), &wake) == OK) {
        driver_on_committed(d, wake.msg);
        message_unref(wake.msg);
    }
    lease_server_reclaim(leases, &departed_count);
}

bool driver_all_done(const struct driver *d, const struct view *view)
{
    /* Without a seat in a replica a member trains nothing. */
    const struct members *idle = d->job->slices > 1 ? &view->leaves : &(struct members){{0}};
    for (size_t i = 0; i < view->count; i++)
        if (!members_has(&d->membership.done, view->node[i]) && !members_has(idle, view->node[i]))
            return false;
    return true;
}

/* When all loops have ended and only workers hold the model, request it from one member. If that
 * member dies, or its copy is unusable, request it from the next. */
static void request_model(struct driver *d, const struct view *view)
{
    uint32_t model_node = atomic_load(&d->requests.final_of),
             departed = atomic_load(&d->model_writer.left_out);
    bool asked = may_show(d, view, model_node);
    if (!d->traits.workers_hold_model || view->count == 0 || !driver_all_done(d, view) ||
        (asked && departed == d->requests.left_out))
        return;
    uint32_t next = view_after(view, model_node); /* the model of a leaf may be old */
    if (!may_show(d, view, next))
        next = view_after(view, WORLD_ANY); /* the first that takes part, if one does */
    if (!may_show(d, view, next))
        return;
    d->requests.left_out = departed;
    atomic_store(&d->requests.final_of, next);
    driver_request_model_of(d, next, MODEL_FINAL);
}

/* Run until the final model is kept and all members' loops have ended. */
static int run_driver(struct driver *d)
{
    int rc = driver_form(d);
    if (rc == OK)
        rc = driver_start(d, group_first_view(&d->group));
    while (rc == OK) {
        const struct view *view = group_view(&d->group);
        rc = driver_check_replaced(d);
        if (rc != OK)
            return rc;
        if (d->ending.kept && driver_all_done(d, view))
            return driver_check_deserted(d);
        if (atomic_load(&d->model_writer.waits) && driver_all_done(d, view))
            return driver_await_model(d);
        if (view->count == 0 && !d->ending.kept && !atomic_load(&d->ending.handing_over) &&
            !atomic_load(&d->model_writer.here))
            return driver_lose_all(d);
        check_leases(d, view);
        rc = driver_check_slices(d, view);
        if (rc == OK)
            rc = driver_check_shares(d, view);
        if (rc != OK)
            return rc;
        driver_check_stop(d, view);
        if (driver_stops_now(d))
            return driver_stop_now(d);
        check_workers(d);
        check_worker_count(d, view);
        check_checkpoint(d, view);
        rc = driver_check_pause(d, view);
        if (rc != OK)
            return rc;
        driver_check_joiners(d, driver_patience(d));
        request_model(d, view);
        d->progress->check_end(d, view);
        driver_report_loss(d, false);
        driver_report_progress(d);
        if (view->count > 0)
            d->membership.last = (uint32_t)view->count;
        rc = driver_turn(d);
    }
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
    atomic_store(&d->requests.final_of, WORLD_ANY);
    atomic_store(&d->requests.checkpoint_of, WORLD_ANY);
    atomic_store(&d->model_writer.last_error, -1.0);
    d->err = err;
    arena_init(&d->arena);
    if (host->watch && host->watch->driver)
        host->watch->driver(host->watch->user, d);
    int rc = driver_open(d);
    if (rc == OK && !d->ending.over)
        rc = run_driver(d);
    rc = driver_close(d, rc, report);
    if (host->watch && host->watch->driver)
        host->watch->driver(host->watch->user, NULL);
    lanes_release(&d->part.driver.lanes);
    if (d->group.world)
        group_release(&d->group);
    buf_release(&d->membership.welcome);
    buf_release(&d->membership.welcome_late);
    snapshot_close(&d->model_writer.snapshot);
    model_writer_release(&d->model_writer);
    bad_record_log_release(&d->reports.bad);
    book_texts_release(&d->start.resumed.books);
    checkpoint_close(d->start.ranges);
    holdings_release(&d->holdings);
    for (uint32_t node = 0; node < VIEW_MEMBERS_MAX; node++)
        free(d->membership.records[node]);
    workspace_free(d->data.own_ws);
    corpus_close(&d->data.own_corpus);
    arena_release(&d->arena);
    free(d);
    return rc;
}
