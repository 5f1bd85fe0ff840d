/* Synchronous progress: all members commit together at an exchange, or a lone worker at a step. One
 * member's report speaks for all. */
#include "base/fault.h"
#include "train/bad_report.h"
#include "train/driver.h"
#include "train/driver_stop.h"
#include "train/objectives.h"
#include "train/worker.h"
#include "train/worker_pause.h"

#include <string.h>

/* Reports of a worker without exchanges: every so many steps, or seconds where steps are long. */
enum { LONE_REPORT_EVERY = 20 };

#define LONE_REPORT_AFTER WORLD_SECOND

/* ---- a worker ---- */

static int report_exchange(struct worker *w, const struct exchange *e)
{
    struct committed report = {.progress = w->member.progress};
    if (e) {
        const struct exchange_meta *meta = exchange_result_meta(e);
        report.lane = e->lane;
        report.n = e->completed;
        report.cost = e->cost;
        report.samples = meta->samples;
        report.loss = meta->loss;
        report.contributors = members_union(&meta->contributors,
                                            /* not members that were left out */
                                            &meta->non_contributing);
        report.participants = meta->participants;
    } else {
        report.samples = w->counts.unreported;
        report.loss = w->counts.unreported_loss;
        report.recent = mean_loss(&w->counts.mean);
        w->counts.unreported = 0;
        w->counts.unreported_loss = 0;
        w->counts.lone_reported = world_now(w->world);
    }
    return worker_send_report(w, &report);
}

/* Steps between two reports of a worker without exchanges; `display` asks for some of them. */
static uint64_t lone_report_every(const Paceline__Job *job)
{
    uint64_t display = job->solver->has_display ? (uint64_t)job->solver->display : 0;
    if (display == 0)
        return LONE_REPORT_EVERY;
    uint64_t parts = (display + LONE_REPORT_EVERY - 1) / LONE_REPORT_EVERY;
    return display % parts == 0 ? display / parts : 1;
}

static bool should_report_alone(const struct worker *w)
{
    return w->member.progress.steps % lone_report_every(w->job) == 0 ||
           world_now(w->world) - w->counts.lone_reported >= LONE_REPORT_AFTER;
}

/* A leave takes two exchanges. The first one announces it: behind it this member has no share of
 * the samples. The member contributes nothing to the second. When the second is complete, all
 * members have the result of the first, so its last contribution cannot be lost with it. */
static bool is_leaving(struct worker *w)
{
    bool leaving = w->leave.announced;
    w->leave.announced = !strategy_shares(&w->member, &w->member.progress);
    return group_is_leaving(&w->group) && leaving && w->leave.announced;
}

/* Count a step of a worker that has no exchanges. */
static void count_lone(struct worker *w)
{
    size_t records = w->learner.taken;
    mean_loss_add(&w->counts.mean, 1, w->learner.loss);
    w->counts.unreported += records;
    w->counts.unreported_loss += w->learner.loss * (double)records;
}

static int on_commit(struct member *m, const struct exchange *e)
{
    struct worker *w = m->train;
    m->progress.samples_used += e ? exchange_result_meta(e)->samples : m->learner->taken;
    w->counts.committed_steps = w->learner.steps;
    worker_record_recovery_report(w);
    bool last = strategy_done(m->job, &m->progress, w->learner.epoch_records);
    bool stop = e ? exchange_result_meta(e)->stop_votes > 0 : atomic_load(&m->group->stop);
    w->leave.all =
        !stop && !last &&
        (e ? exchange_meta_ends_run(exchange_result_meta(e)) : group_is_leaving(m->group));
    stop |= w->leave.all;
    if (!e)
        count_lone(w);
    w->counts.round_steps = 0;
    w->counts.round_loss = 0;
    int rc = worker_end_step(w);
    bootstrap_hand_on(&w->bootstrap, w->world, e != NULL);
    bool report = e || last || stop || should_report_alone(w);
    if (rc == OK)
        rc = worker_report_bad_records(w);
    if (rc == OK && report)
        rc = report_exchange(w, e);
    if (rc != OK)
        return rc;
    tracer_ship(w->world, w->host->trace);
    bool on = e && !last && !stop;
    bool leaving = on && is_leaving(w);
    /* First the joiner, since a busy publisher keeps joiners out. A leaving member admits none: the
     * driver chooses another donor when it is gone. */
    if (on && !group_is_leaving(m->group))
        rc = worker_admit_joiner(w);
    if (rc == OK && !last && !m->publishes_itself)
        worker_publish_if_requested(w, &m->progress, e);
    if (rc == OK && on && !leaving)
        rc = worker_pause(w, true);
    w->leave.left |= leaving;
    if (rc != OK || stop || leaving)
        return rc != OK ? rc : ERR_STOP;
    return atomic_load(&m->group->end.over) ? ERR_DRIVER : OK;
}

static void begin_sync(struct worker *w)
{
    w->member.on_commit = on_commit;
    w->counts.lone_reported = world_now(w->world);
}

static uint32_t uses_due(const struct worker *w, const struct progress *progress)
{
    return trigger_uses(w->job, w->counts.evaluate_every, w->learner.epoch_records, &w->counts.seen,
                        progress);
}

/* A joiner begins behind this member's commit point. */
static struct progress joiner_progress(struct worker *w)
{
    return w->member.progress;
}

/* Where the next exchange brings the model, a joiner is admitted within a round and takes part in
 * that exchange. Before the first exchange there is no state to join. */
static bool admits_in_round(const struct worker *w)
{
    const struct member *m = &w->member;
    return w->traits.join_needs_no_model && m->progress.exchanges > m->start.exchanges;
}

/* The last commit was reported. */
static int end_sync(struct worker *w)
{
    (void)w;
    return OK;
}

/* ---- the driver ---- */

static uint32_t all_together(const struct driver *d)
{
    return job_replicas(d->job);
}

/* Of synchronous workers, whose progress differs by one exchange at most: the furthest. A leaf has
 * no part in what comes: an exchange that it alone completed is repeated without it. */
static struct progress furthest_progress(struct driver *d, const struct view *view)
{
    const struct members participants = view_participants(view);
    const struct recovery_report *best = NULL;
    const struct progress *early = NULL;
    MEMBERS_EACH (node, &participants) {
        const struct recovery_report *report = &d->recovery.report[node];
        if (!best || report->progress.exchanges > best->progress.exchanges)
            best = report;
        if (!early || d->recovery.early[node].exchanges > early->exchanges)
            early = &d->recovery.early[node];
    }
    PL_ASSERT(best);
    d->recovery.has_join_state = best->words > 0;
    memcpy(d->recovery.join_state, best->join_state, sizeof d->recovery.join_state);
    /* Strategies with a driver part complete no exchange without a driver. */
    bool further = !d->traits.driver_part && early->exchanges > best->progress.exchanges;
    return further ? *early : best->progress;
}

static void on_early_report(struct driver *d, uint32_t node, const struct committed *report)
{
    if (node < VIEW_MEMBERS_MAX && report->progress.exchanges > d->recovery.early[node].exchanges)
        d->recovery.early[node] = report->progress;
}

/* Members evaluate and stop by their own progress, which is the same on all. */
static void on_report(struct driver *d)
{
    (void)d;
}

static uint64_t commits_of(const struct progress *progress)
{
    return progress->exchanges == 0 ? progress->steps : progress->exchanges;
}

/* Before the first exchange the slowest worker's heartbeats give the progress, since all wait for
 * it. */
static void add_local_steps(struct driver *d, const struct view *view, struct train_progress *p)
{
    uint64_t least = UINT64_MAX;
    double loss = 0;
    if (d->ledger.last.n > d->start.resumed.progress.exchanges || view->number > 1 ||
        view->count == 0 || job_is_alone(d->job))
        return;
    for (size_t i = 0; i < view->count; i++) {
        uint32_t node = view->node[i];
        uint64_t steps = atomic_load(&d->server.steps[node]);
        least = steps < least ? steps : least;
        loss += atomic_load(&d->server.local_loss[node]) / (double)view->count;
    }
    progress_meter_add_local(&d->reports.meter, least, d->traits.round, loss, p);
    if (p->first_exchange_s >= 0)
        d->counts.first_exchange_at =
            world_now(d->world) + (int64_t)(p->first_exchange_s * (double)WORLD_SECOND);
}

/* The driver part ends with its last round. The counts of local_data are complete when the last
 * report of each worker is there, which precedes its `done`. */
static void check_part_end(struct driver *d, const struct view *view)
{
    if (!d->job->local_data || !atomic_load(&d->ending.handing_over) ||
        atomic_load(&d->ending.counted) || !driver_all_done(d, view))
        return;
    driver_snapshot_books(d, true);
    atomic_store(&d->ending.counted, true);
    world_raise(d->world, SIGNAL_GROUP);
}

static int on_part_commit(struct driver_part *l, const struct exchange *e)
{
    struct driver *d = l->train;
    PL_ASSERT(e);
    l->progress.samples_used += exchange_result_meta(e)->samples;
    bool last = strategy_done(l->job, &l->progress, l->records);
    uint32_t use = trigger_uses(d->job, d->requests.evaluate_every, l->records,
                                &d->requests.last_commit, &l->progress);
    uint32_t uses = atomic_load(&d->requests.uses);
    atomic_fetch_or(&d->requests.uses,
                    use & MODEL_SNAPSHOT); /* a snapshot waits for the next copy */
    d->requests.last_commit = l->progress;
    use |= uses & ~trigger_awaits_exchange(e, l->keeps_streams, uses);
    if (use & MODEL_CHECKPOINT && exchange_result_meta(e)->checkpoint_votes > 0)
        use |= MODEL_STREAMS;
    if (use && !last && !d->traits.workers_hold_model &&
        publisher_start(&d->part.publisher, &l->progress, use, &l->model))
        atomic_fetch_and(&d->requests.uses, ~use);
    return exchange_meta_ends_run(exchange_result_meta(e)) ? ERR_STOP : OK;
}

static struct progress part_progress(struct driver *d)
{
    return d->part.driver.progress;
}

const struct progress_ops progress_sync = {
    .begin = begin_sync,
    .uses_due = uses_due,
    .for_joiner = joiner_progress,
    .admits_in_round = admits_in_round,
    .pauses_in_round = admits_in_round, /* so that it can be a donor */
    .end = end_sync,
    .together = all_together,
    .recover = furthest_progress,
    .on_early_report = on_early_report,
    .on_report = on_report,
    .commits = commits_of,
    .add_local = add_local_steps,
    .check_end = check_part_end,
    .on_part_commit = on_part_commit,
    .of_part = part_progress,
};
