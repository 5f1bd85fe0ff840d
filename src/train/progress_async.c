/* Asynchronous progress: each worker commits and reports its own work at its own pace. The driver
 * adds the reports up, decides by the sum when a model is evaluated, and when the run ends. */
#include "base/fault.h"
#include "train/bad_report.h"
#include "train/driver.h"
#include "train/driver_stop.h"
#include "train/objectives.h"
#include "train/worker.h"
#include "train/worker_pause.h"

#include <math.h>

enum { REPORTS = 50, REPORT_STEPS_MAX = 20 }; /* of a worker in a run; steps between two */

/* ---- a worker ---- */

/* Report the samples since the last report, and the cost of an exchange of this worker's own. */
static int report_async(struct worker *w, uint32_t lane, const struct exchange_cost *cost)
{
    struct committed report = {
        .asynchronous = true,
        .progress = w->member.progress,
        .lane = lane,
        .n = cost ? w->member.progress.exchanges : 0,
        .samples = w->counts.unreported,
        .loss = w->counts.unreported_loss,
        .lease = lease_client_report(&w->lease_client, &w->member),
    };
    if (cost)
        report.cost = *cost;
    w->counts.unreported = 0;
    w->counts.unreported_loss = 0;
    return worker_send_report(w, &report);
}

/* May this worker continue? A worker that trains alone decides itself when the run is done; the
 * others receive `stop`. */
static int check_stop(const struct worker *w)
{
    const struct member *m = &w->member;
    bool alone = job_is_alone(m->job);
    if (atomic_load(&m->group->stop) ||
        (alone && strategy_done(m->job, &m->progress, w->learner.epoch_records)))
        return ERR_STOP;
    return atomic_load(&m->group->end.over) ? ERR_DRIVER : OK;
}

static int on_step(struct member *m)
{
    struct worker *w = m->train;
    w->counts.unreported += m->share;
    if (isfinite(m->learner->loss))
        w->counts.unreported_loss += m->learner->loss * (double)m->share;
    bool wants_lease = lease_client_on_step(&w->lease_client, m);
    int rc = worker_end_step(w);
    worker_record_recovery_report(w);
    bootstrap_hand_on(&w->bootstrap, w->world, false);
    if (rc == OK)
        rc = worker_report_bad_records(w);
    if (rc == OK)
        rc = check_stop(w);
    if (w->counts.unreported >= w->counts.report_samples || wants_lease) {
        int reported = report_async(w, 0, NULL);
        rc = reported != OK ? reported : rc;
    }
    bool leaving = group_is_leaving(m->group);
    if (rc == OK && !leaving)
        rc = worker_admit_joiner(w);
    if (rc == OK)
        worker_publish_if_requested(w, &m->progress, NULL);
    if (rc == OK && !leaving)
        rc = worker_pause(w, true);
    if (rc == OK)
        rc = check_stop(w);
    tracer_ship(w->world, w->host->trace);
    w->leave.left |= rc == OK && leaving; /* at once, since no exchange needs it */
    return rc == OK && leaving ? ERR_STOP : rc;
}

/* A joiner may be admitted in a pause. */
static int on_begin(struct member *m)
{
    return worker_pause(m->train, true);
}

static void on_leases_exhausted(struct member *m)
{
    struct worker *w = m->train;
    uint64_t high = m->lease_cursor.highest;
    size_t count = m->lease_cursor.count;
    lease_client_poll(&w->lease_client, m);
    if (m->lease_cursor.count != count || m->lease_cursor.highest != high)
        worker_record_recovery_report(w);
}

static int on_exchange(struct member *m, uint32_t lane, const struct exchange_cost *cost)
{
    struct worker *w = m->train;
    m->progress.exchanges++;
    w->counts.own_exchanges++;
    worker_record_recovery_report(w);
    int rc = report_async(w, lane, cost);
    return rc == OK ? check_stop(w) : rc;
}

/* Samples between two reports of an asynchronous worker. The end of the run depends on the sum of
 * all reports, so a worker reports fifty times in a run, and every twenty steps at least. */
static uint64_t report_every(const struct worker *w, size_t workers)
{
    const Paceline__Stop *stop = w->job->stop;
    double steps = (double)REPORTS * REPORT_STEPS_MAX;
    if (stop->has_steps && (double)stop->steps < steps)
        steps = (double)stop->steps;
    double epoch = (double)w->learner.epoch_records / job_step_records(w->job) / (double)workers;
    if (stop->has_epochs && stop->epochs * epoch < steps)
        steps = stop->epochs * epoch;
    uint64_t every = (uint64_t)(steps / REPORTS);
    return (every > 0 ? every : 1) * job_step_records(w->job);
}

/* A joiner is its own only sharer and counts its exchanges from 1: its samples come from its
 * leases, or from about the others' sample offset. */
static void begin_async(struct worker *w)
{
    struct member *m = &w->member;
    m->on_begin = on_begin;
    m->on_step = on_step;
    m->on_exchange = on_exchange;
    m->on_leases_exhausted = on_leases_exhausted;
    if (w->join.joined) {
        w->start.sharers = members_only(w->world->self);
        w->start.exchanges = 0;
    }
    w->start.samples_used = 0;
    w->counts.report_samples = report_every(w, w->job->workers);
}

/* The driver requests copies, since only it knows the progress of all. */
static uint32_t no_uses_due(const struct worker *w, const struct progress *progress)
{
    (void)w;
    (void)progress;
    return 0;
}

/* A joiner begins at this worker's place in the stream of samples, and behind the run's steps to
 * there. This worker's own steps run ahead while the run has fewer workers than the job sets. */
static struct progress joiner_progress(struct worker *w)
{
    struct member *m = &w->member;
    struct progress progress = m->progress;
    uint64_t all = job_step_records(m->job) * m->job->workers, from = w->start.sample_offset;
    progress.sample_offset =
        m->leased ? lease_cursor_share(&m->lease_cursor).start : strategy_async_share(m).start;
    progress.steps = w->start.steps;
    if (m->job->batch_growth)
        progress.steps = (uint64_t)strategy_grown_steps(m->job, progress.sample_offset,
                                                        w->learner.epoch_records);
    else if (progress.sample_offset > from)
        progress.steps += (progress.sample_offset - from) / all;
    return progress;
}

static bool admits_always(const struct worker *w)
{
    (void)w;
    return true;
}

/* At these boundaries it waits for another node already. It pauses after its steps. */
static bool never_pauses(const struct worker *w)
{
    (void)w;
    return false;
}

/* The last report: the driver grants the unused rest of this worker's leases to others. */
static int end_async(struct worker *w)
{
    w->lease_client.ends = true;
    return report_async(w, 0, NULL);
}

/* ---- the driver ---- */

static uint32_t one_alone(const struct driver *d)
{
    (void)d;
    return 1;
}

/* The sum over all asynchronous workers, those that have left included. */
static struct progress recover_sum(struct driver *d, const struct view *view)
{
    const struct members members = view_members(view);
    const struct recovery_sum sum =
        recovery_sum(d->recovery.report, &members, &d->start.resumed.progress);
    struct progress all = {
        .sample_offset = sum.samples, .samples_used = sum.samples, .exchanges = sum.exchanges};
    MEMBERS_EACH (node, &members) {
        d->ledger.own[node].samples = d->recovery.report[node].samples;
        d->ledger.own[node].exchanges = d->recovery.report[node].exchanges;
    }
    d->recovery.untaken = sum.untaken;
    all.steps = d->ledger.grows ? (uint64_t)strategy_grown_steps(d->job, all.sample_offset,
                                                                 d->data.epoch_records)
                                : all.sample_offset / d->ledger.step_samples;
    return all;
}

/* A worker's counts are in its recovery report. */
static void on_early_report(struct driver *d, uint32_t node, const struct committed *report)
{
    (void)d;
    (void)node;
    (void)report;
}

/* The summed progress decides when the model is evaluated (after so many exchanges, or once an
 * epoch) and when the run ends. */
static void count_async(struct driver *d)
{
    const struct progress *all = &d->ledger.last.progress;
    atomic_store(&d->counts.sample_offset, all->sample_offset);
    atomic_store(&d->counts.steps, all->steps);
    atomic_store(&d->counts.exchanges, all->exchanges);
    size_t records = d->data.epoch_records;
    struct trigger_counts counts =
        trigger_counts_of(d->job, d->requests.evaluate_every, records, all);
    if (strategy_done(d->job, all, records)) {
        d->counts.complete = true;
        return;
    }
    uint32_t uses = (counts.evaluations > d->requests.before.evaluations ? MODEL_EVALUATE : 0u) |
                    (counts.snapshots > d->requests.before.snapshots ? MODEL_SNAPSHOT : 0u);
    if (uses)
        driver_request_model(d, uses);
    d->requests.before = counts;
}

static void on_report(struct driver *d)
{
    count_async(d);
    driver_report_departed(d);
}

static uint64_t commits_of(const struct progress *progress)
{
    return progress->steps;
}

/* Heartbeats add nothing: every worker reports its steps. */
static void add_nothing(struct driver *d, const struct view *view, struct train_progress *p)
{
    (void)d;
    (void)view;
    (void)p;
}

/* The driver part serves workers until all their loops have ended. Then it finishes and hands over
 * the final model. */
static void end_part(struct driver *d, const struct view *view)
{
    if (!d->part.task || atomic_load(&d->part.driver.finish) || view->count == 0 ||
        !driver_all_done(d, view))
        return;
    driver_snapshot_books(d, true);
    atomic_store(&d->ending.handing_over, true);
    atomic_store(&d->part.driver.finish, true);
    world_raise(d->world, SIGNAL_GROUP);
}

/* The summed progress, for the driver part: its task must not read the ledger. */
static void sum_now(const struct driver *d, struct progress *progress)
{
    progress->sample_offset = atomic_load(&d->counts.sample_offset);
    progress->steps = atomic_load(&d->counts.steps);
    progress->exchanges = atomic_load(&d->counts.exchanges);
}

/* The driver part's model has changed: the main task has the progress and the uses that are due. */
static int on_part_change(struct driver_part *l, const struct exchange *e)
{
    struct driver *d = l->train;
    uint32_t uses = atomic_load(&d->requests.uses);
    PL_ASSERT(!e); /* no exchange commits for all */
    uses &= ~trigger_awaits_owed(l->owes, uses);
    sum_now(d, &l->progress);
    if (uses && publisher_start(&d->part.publisher, &l->progress, uses, &l->model))
        atomic_fetch_and(&d->requests.uses, ~uses);
    return OK;
}

static struct progress part_progress(struct driver *d)
{
    struct progress progress = d->part.driver.progress;
    sum_now(d, &progress);
    return progress;
}

/* The summed progress at the last model request. */
static void sum_at_request(void *driver, struct progress *progress)
{
    const struct driver *d = driver;
    progress->sample_offset = atomic_load(&d->requests.sample_offset);
    progress->steps = atomic_load(&d->requests.steps);
    progress->exchanges = atomic_load(&d->requests.exchanges);
}

const struct progress_ops progress_async = {
    .asynchronous = true,
    .begin = begin_async,
    .uses_due = no_uses_due,
    .for_joiner = joiner_progress,
    .admits_in_round = admits_always,
    .pauses_in_round = never_pauses,
    .end = end_async,
    .together = one_alone,
    .recover = recover_sum,
    .on_early_report = on_early_report,
    .on_report = on_report,
    .commits = commits_of,
    .add_local = add_nothing,
    .check_end = end_part,
    .on_part_commit = on_part_change,
    .of_part = part_progress,
    .behind_model = sum_at_request,
};
