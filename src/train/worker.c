/* A worker's node: after the handshake it runs its strategy's loop until the end of the run. */
#include "train/worker.h"
#include "tensor/kernels.h"
#include "train/bad_report.h"
#include "train/ledger.h"
#include "train/recovery_report.h"
#include "train/triggers.h"
#include "train/worker_checkpoint.h"
#include "train/worker_pause.h"
#include "train/worker_slice.h"
#include "wire/wire_send.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Does this worker report for all? Where the driver has no part, the worker with the lowest number
 * among the sharers does. */
static bool speaks_for_all(const struct worker *w, const struct progress *progress)
{
    return w->traits.workers_hold_model && members_rank(&progress->sharers, w->world->self) == 0;
}

/* This worker's model. The optimizer's state is part of it where all replicas have the same, and
 * the state of its streams where no other worker has any. */
static struct global_model own_model(const struct worker *w)
{
    const struct learner *l = &w->learner;
    bool common = job_is_alone(w->job) || w->traits.replicas_agree;
    struct global_model model = {.x = &l->x, .s = &l->s};
    if (job_is_alone(w->job))
        model.carried = &l->carried;
    if (common) {
        model.state = l->optim.state;
        model.states = l->optim.ops->states;
        model.updates = l->optim.updates;
    }
    return model;
}

/* With the learner's count of updates. */
struct global_model worker_model(struct worker *w)
{
    struct global_model model = *member_model(&w->member);
    if (model.state == w->learner.optim.state)
        model.updates = w->learner.optim.updates;
    return model;
}

/* Start to send a copy of the model. */
static bool publish_model(struct worker *w, const struct progress *progress, uint32_t use)
{
    struct global_model model = worker_model(w);
    const struct carried_selection own = worker_streams(w);
    if (use & MODEL_STREAMS && use & MODEL_CHECKPOINT) {
        model.carried = &w->learner.carried;
        model.carried_only = &own;
    }
    return publisher_start(&w->publisher, progress, use, &model);
}

void worker_publish(struct worker *w, const struct progress *progress, uint32_t use)
{
    struct group *group = &w->group;
    uint32_t late = MODEL_SNAPSHOT | (publisher_admits(&w->publisher) ? MODEL_EVALUATE : 0u);
    bool started = publish_model(w, progress, use);
    if (!started)
        atomic_fetch_or(&group->model_requests, use & late);
    atomic_fetch_and(&group->model_requests, ~(started ? use : MODEL_EVALUATE & ~late));
}

static bool checkpoint_due(const struct member *m)
{
    return atomic_load(&m->group->model_requests) & MODEL_CHECKPOINT;
}

void worker_publish_if_requested(struct worker *w, const struct progress *progress,
                                 const struct exchange *e)
{
    uint32_t use = atomic_load(&w->group.model_requests) | w->progress->uses_due(w, progress);
    bool speaks = speaks_for_all(w, progress);
    bool voted = e && exchange_result_meta(e)->checkpoint_votes > 0;
    if (e)
        use &= ~trigger_awaits_exchange(e, w->member.keeps_streams, use);
    use &= ~trigger_awaits_owed(w->member.owes, use);
    w->counts.seen = *progress;
    if (voted && speaks && use & MODEL_CHECKPOINT)
        use |= MODEL_STREAMS;
    else if (voted)
        worker_send_streams(w);
    if (use && speaks)
        worker_publish(w, progress, use);
}

/* The same by the strategy's hooks. */
static uint32_t uses_due(struct member *m)
{
    struct worker *w = m->train;
    uint32_t use = w->progress->uses_due(w, &m->progress);
    bool first = m->progress.exchanges == 0 && group_first_view(&w->group)->number == 1;
    w->counts.seen = m->progress;
    return use | (first && w->job->evaluate->at_start ? MODEL_EVALUATE : 0u);
}

/* The strategy has received a donor's state: training begins here. */
static void on_state(struct member *m)
{
    struct worker *w = m->train;
    w->start = m->start = w->counts.seen = m->progress;
    worker_record_recovery_report(w);
}

int worker_send_report(struct worker *w, struct committed *report)
{
    struct buf bytes = {0};
    report->steps_s = w->learner.steps_s;
    report->data_s = w->data.ws->loader.waited_s + w->learner.late_s;
    worker_report_share(w, report);
    report->cache = worker_cache_report(&w->data.cache);
    committed_encode(report, &bytes);
    int rc = worker_report_if_connected(w, WIRE_COMMITTED, &bytes);
    buf_release(&bytes);
    return rc;
}

/* Store the recovery report as of this moment: a recovered driver continues from it. */
void worker_record_recovery_report(struct worker *w)
{
    const struct member *m = &w->member;
    struct recovery_report report = {
        .progress = m->progress,
        .samples = m->progress.samples_used,
        .exchanges = w->counts.own_exchanges,
    };
    lease_client_recovery_report(m, &report);
    for (int i = 0; i < GROUP_TOTALS; i++)
        report.departed_totals[i] = atomic_load(&w->group.driver.departed_totals[i]);
    uint64_t header[GROUP_REPORT];
    bool reports = w->strategy->export_join_state && w->traits.driver_part && m->own;
    size_t words = reports ? w->strategy->export_join_state(m, report.join_state) : 0;
    report.words = words == JOIN_STATE_NOT_HERE ? 0 : words;
    recovery_report_write(&report, header);
    group_set_recovery_report(&w->group, header, GROUP_REPORT);
}

int worker_admit_joiner(struct worker *w)
{
    struct member *m = &w->member;
    if (atomic_load(&m->group->joiner) == ROSTER_NO_NODE) /* copying the model takes time */
        return OK;
    struct global_model model = {.x = NULL};
    if (!w->traits.join_needs_no_model)
        model = worker_model(w);
    struct progress progress = w->progress->for_joiner(w);
    if (model.state != w->learner.optim.state) /* it is the servers': the joiner fetches theirs */
        model.states = 0;
    return join_donor_admit(w->strategy, &w->traits, &w->publisher, m, &progress, &model);
}

/* A stop at once: where the global model does not change between commit points, it can be sent
 * before the next one. */
void worker_publish_urgent(struct worker *w)
{
    uint32_t requests = atomic_load(&w->group.model_requests);
    bool steady = w->member.model.x != &w->learner.x && !w->member.publishes_itself;
    if (requests & MODEL_URGENT && steady && speaks_for_all(w, &w->member.progress) &&
        publish_model(w, &w->member.progress, requests))
        atomic_fetch_and(&w->group.model_requests, ~requests);
}

int worker_end_step(struct worker *w)
{
    worker_show_step(w);
    worker_cache_step(&w->data.cache, world_now(w->world));
    return worker_poll_share(w);
}

/* At a step boundary within a round, which can be long. */
static int on_step_boundary(struct member *m)
{
    struct worker *w = m->train;
    w->counts.round_steps++;
    w->counts.round_loss += w->learner.loss;
    atomic_store(&w->group.work.loss, w->counts.round_loss / (double)w->counts.round_steps);
    int rc = worker_end_step(w);
    worker_publish_urgent(w);
    if (rc == OK && w->progress->admits_in_round(w) && !group_is_leaving(m->group))
        rc = worker_admit_joiner(w);
    return rc == OK && w->progress->pauses_in_round(w) ? worker_pause(w, false) : rc;
}

static int report_done(struct worker *w, int status)
{
    struct buf bytes = {0};
    struct departure departure = {.status = status, .stage = w->stage};
    worker_find_location(w, &departure.location);
    if (status != OK)
        memcpy(departure.text, w->err.text, sizeof departure.text);
    departure_encode(&departure, &bytes);
    int rc = worker_report_if_connected(w, WIRE_DONE, &bytes);
    buf_release(&bytes);
    return rc;
}

int worker_drain_lanes(struct worker *w)
{
    const struct lanes *lanes = &w->member.lanes;
    int rc = OK;
    if (w->member.stay_in_line)
        return w->member.stay_in_line(&w->member);
    for (size_t i = 0; rc == OK && i < lanes->count; i++)
        if (!lanes->at[i]->in_background)
            rc = exchange_sync(lanes->at[i]);
    return rc;
}

static int hand_over(struct worker *w, uint32_t use)
{
    if (w->job->slices > 1)
        return worker_slice_offer(w, use);
    int rc = publisher_finish(&w->publisher, WORLD_FOREVER);
    if (rc != OK && rc != ERR_PEER)
        return rc;
    rc = w->strategy->collect_model ? w->strategy->collect_model(&w->member) : OK;
    if (use & MODEL_FINAL && w->member.keeps_streams)
        use |= MODEL_STREAMS; /* each has sent its own */
    if (rc == OK && !publish_model(w, &w->member.progress, use))
        rc = ERR_NOMEM;
    return rc;
}

/* To a driver that has recovered, and knows neither that the loop has ended nor states that were
 * sent to the one before. */
static int report_again(struct worker *w, int status)
{
    if (status == OK && worker_hand_over_streams(w) == ERR_CANCELLED)
        return ERR_CANCELLED;
    return report_done(w, status);
}

/* After the loop, until the driver sends `bye`: members may still lack the last result, and the
 * driver may request the model. A driver that recovers meanwhile does not know that this loop has
 * ended, so `done` is sent again; and so is a leave, each second, since it does not count before
 * the driver knows this worker. */
static int await_release(struct worker *w, int status, uint32_t reported)
{
    atomic_store(&w->group.work.busy, false);
    int served = w->job->slices > 1 && w->member.world ? worker_slice_serve(w) : OK;
    if (served != OK)
        return served;
    for (;;) {
        const struct wait_for change = wait_signal(w->world, SIGNAL_GROUP);
        if (atomic_load(&w->group.end.over) ||
            (atomic_load(&w->group.leave.done) && atomic_load(&w->group.driver.missing)))
            return OK;
        uint32_t reconnects = atomic_load(&w->group.driver.reconnects);
        int rc = reconnects != reported ? report_again(w, status) : OK;
        reported = reconnects;
        if (rc == OK)
            rc = worker_drain_lanes(w);
        uint32_t requests = atomic_exchange(&w->group.model_requests, 0);
        if (rc == OK && requests & (MODEL_FINAL | MODEL_URGENT))
            rc = hand_over(w, requests);
        if (rc != OK)
            return rc;
        struct wake wake;
        bool leaves = w->leave.left && !w->leave.all;
        rc = world_wait(w->world, &change, 1,
                        leaves ? world_now(w->world) + WORLD_SECOND : WORLD_FOREVER, &wake);
        if (rc == ERR_TIMEOUT)
            group_send_leave(&w->group, w->stage == DEPARTED_TRAINING);
        else if (rc != OK)
            return rc;
    }
}

static void explain_divergence(struct worker *w)
{
    double rate = (double)w->job->solver->base_lr, loss = w->learner.loss;
    bool maps = !source_is_numbers(w->data.corpus->set[SET_TRAIN].source);
    const char *is = isnan(loss) ? "NaN" : isinf(loss) ? "infinite" : NULL;
    char number[32];
    if (job_takes_all(w->job)) {
        err_set(
            &w->err, ERR_DIVERGED,
            "step %llu: the loss of the model is not finite where the search begins: %sbegin with "
            "other weights",
            (unsigned long long)w->learner.steps,
            maps ? "bring the input near 0 (scale, mean), or " : "");
        return;
    }
    if (!is)
        snprintf(number, sizeof number, "%.4g", loss);
    err_set(&w->err, ERR_DIVERGED,
            "step %llu: the model diverged (loss %s): lower the learning rate, solver.base_lr, now "
            "%.6g (--lr %.6g)%s",
            (unsigned long long)w->learner.steps, is ? is : number, rate, rate / 10,
            maps ? ", or bring the input near 0 (scale, mean)" : "");
}

/* Explain the error that ended the loop, with a remedy where the data or the machine is at fault.
 */
static void explain_end(struct worker *w, int rc)
{
    const struct err *why = &w->learner.err;
    unsigned long long step = w->learner.steps;
    const char *remedy = "";
    if (rc == ERR_INPUT && w->job->on_bad_record == PACELINE__ON_BAD_RECORD__stop)
        remedy = "; " BAD_RECORD_REMEDY;
    else if (rc == ERR_IO || rc == ERR_INPUT)
        remedy = "; mend the data there, then start its worker again or resume the run";
    else if (rc == ERR_NOMEM)
        remedy = "; free memory on that machine, or give the job a smaller batch";
    if (rc == ERR_DIVERGED && rc != why->status)
        explain_divergence(w);
    else if (rc == why->status)
        err_set(&w->err, rc, "step %llu: %s%s", step, why->text, remedy);
    else
        err_set(&w->err, rc, "step %llu: %s (loss %g)%s", step, status_text(rc), w->learner.loss,
                remedy);
}

/* Has the loop ended because this worker has got another slice of the model? */
static bool is_misplaced(const struct worker *w)
{
    uint32_t seat = view_seat(group_view(&w->group), w->world->self);
    return w->job->slices > 1 && seat != VIEW_NO_SEAT &&
           seat % w->job->slices != w->data.ws->slice.index;
}

static int run_loop(struct worker *w)
{
    const struct view *view = group_first_view(&w->group);
    w->member = (struct member){
        .world = w->world,
        .group = &w->group,
        .learner = &w->learner,
        .job = w->job,
        .arena = &w->arena,
        .model = own_model(w),
        .resumed = w->extras.here ? w->extras.at : NULL,
        .on_step_boundary = on_step_boundary,
        .checkpoint_due = checkpoint_due,
        .uses_due = uses_due,
        .on_state = on_state,
        .train = w,
    };
    if (!w->join.joined)
        w->start.sharers = view_members(view);
    int rc = w->job->slices > 1 ? worker_slice_begin(w) : OK;
    w->member.join_state = w->member.lanes.joined = w->join.joined ? &w->join.state : NULL;
    worker_begin_streams(w);
    w->progress->begin(w);
    w->member.start = w->member.progress = w->counts.seen = w->start;
    w->counts.evaluate_every =
        objectives_every(w->job, w->learner.epoch_records, w->traits.round * job_replicas(w->job));
    if (w->traits.takes_leases)
        lease_client_begin(&w->lease_client, &w->member, w->join.joined);
    atomic_store(&w->group.work.busy, true);
    if (rc == OK)
        rc = mean_loss_init(&w->counts.mean, (size_t)w->job->solver->average_loss, &w->arena);
    if (!worker_lacks_model(w)) /* else it must rejoin if the driver dies before its first step */
        worker_record_recovery_report(w);
    if (rc == OK)
        rc = w->strategy->worker(&w->member);
    objectives_release(&w->objectives);
    if (rc == OK)
        rc = w->progress->end(w);
    if (rc != OK && !is_misplaced(w))
        explain_end(w, rc);
    return rc;
}

bool train_ends_the_run(int status)
{
    return status == ERR_DIVERGED || status == ERR_REPLICAS;
}

/* Leave the run. Models that are being sent to a joiner or to the driver must arrive first; then
 * the driver disconnects this worker. From the last member, and from one of several that leave
 * together, the driver requests the model first. */
static int leave_run(struct worker *w)
{
    bool trains = w->stage == DEPARTED_TRAINING;
    uint32_t reconnects = atomic_load(&w->group.driver.reconnects);
    int rc = w->leave.all ? worker_hand_over_streams(w) : OK;
    if (rc == OK)
        rc = publisher_finish(&w->publisher, WORLD_FOREVER);
    if (rc != OK && rc != ERR_PEER)
        return rc;
    log_info(w->host->log, "worker %u leaves the run", w->world->self);
    if (w->host->asked_to_leave)
        *w->host->asked_to_leave = atomic_load(&w->group.leave.by_driver);
    atomic_store(&w->group.leave.done, true);
    rc = trains ? report_done(w, ERR_STOP) : OK;
    if (!w->leave.all)
        group_send_leave(&w->group, trains);
    if (rc == OK)
        rc = await_release(w, ERR_STOP, reconnects);
    if (rc == OK && trains) /* a driver that is lost has nothing of it */
        worker_save_checkpoint(w);
    if (w->host->left)
        *w->host->left = !atomic_load(&w->group.end.run_ended);
    return rc;
}

/* This worker cannot continue: report the reason and end. The others continue without it. */
static int end_in_trouble(struct worker *w, int rc)
{
    report_done(w, rc);
    return rc;
}

/* Leave before being a member. */
static int leave_early(struct worker *w)
{
    log_info(w->host->log, "worker %u leaves the run", w->world->self);
    report_done(w, ERR_STOP);
    if (w->host->left)
        *w->host->left = true;
    return OK;
}

/* This worker cannot begin, for a reason of its own or because there is no run: report it. */
static int report_reason(struct worker *w, int rc)
{
    if (atomic_load(&w->group.end.run_ended))
        return OK;
    if (atomic_load(&w->group.end.refused))
        return err_set(&w->err, ERR_PEER, "the driver refuses this worker: %s",
                       w->group.end.refusal);
    if (rc == ERR_DRIVER || rc == ERR_CANCELLED)
        return rc;
    if (w->err.status != rc)
        err_set(&w->err, rc, "it cannot begin: %s", status_text(rc));
    return end_in_trouble(w, rc);
}

static int run_strategy(struct worker *w)
{
    int rc = worker_open(w);
    if (rc != OK && w->opening.ended == ERR_STOP)
        return leave_early(w);
    if (rc != OK)
        return end_in_trouble(w, rc);
    w->stage = DEPARTED_JOINING;
    rc = worker_join(w);
    if (rc != OK)
        return report_reason(w, rc);
    if (w->leave.left)
        return leave_run(w);
    w->stage = DEPARTED_TRAINING;
    worker_show(w, WORK_JOINED);
    do {
        rc = worker_take_seat(w);
        rc = rc == OK ? run_loop(w) : rc;
    } while (rc == ERR_VIEW && is_misplaced(w));
    tracer_ship_all(w->world, w->host->trace);
    if (rc == ERR_DRIVER && atomic_load(&w->group.end.refused))
        return report_reason(w, rc);
    if (rc == ERR_DRIVER)
        worker_save_checkpoint(w);
    if (rc == ERR_CANCELLED || rc == ERR_DRIVER)
        return atomic_load(&w->group.end.run_ended) ? OK : rc;
    if (rc == OK && (w->leave.left || w->leave.all))
        return leave_run(w);
    if (rc != OK && !train_ends_the_run(rc)) {
        (void)worker_report_bad_records(w); /* the run's log gets the bad records that it has met */
        return end_in_trouble(w, rc);
    }
    uint32_t reconnects = atomic_load(&w->group.driver.reconnects);
    if (rc == OK && worker_hand_over_streams(w) == ERR_CANCELLED)
        return ERR_CANCELLED;
    int reported = report_done(w, rc);
    int lingered = reported == OK ? await_release(w, rc, reconnects) : reported;
    if (rc == OK && (lingered == OK || lingered == ERR_DRIVER)) /* it may have died before `bye` */
        worker_save_checkpoint(w);
    return rc == OK ? lingered : rc;
}

int train_work(struct world *world, const struct train_host *host)
{
    struct worker *w = calloc(1, sizeof *w);
    if (!w)
        return ERR_NOMEM;
    w->world = world;
    w->host = host;
    arena_init(&w->arena);
    if (host->watch && host->watch->worker)
        host->watch->worker(host->watch->user, world->self, w);
    int rc = run_strategy(w);
    if (rc == OK && w->stage == DEPARTED_TRAINING)
        worker_show(w, w->leave.left || w->leave.all ? WORK_LEFT : WORK_OVER);
    if (rc != OK && rc == w->err.status && host->why)
        *host->why = w->err;
    if (host->given_up && atomic_load(&w->group.end.given_up))
        atomic_store(host->given_up, true);
    if (host->watch && host->watch->worker)
        host->watch->worker(host->watch->user, world->self, NULL);
    world_end_task(w->world, &w->warming);
    worker_slice_end(w);
    publisher_release(&w->publisher);
    if (w->strategy && w->strategy->close && w->member.world)
        w->strategy->close(&w->member);
    lanes_release(&w->member.lanes);
    bootstrap_release(&w->bootstrap, w->world);
    if (w->group.world)
        group_release(&w->group);
    learner_stop(&w->learner);
    tracer_end(w->world, w->host->trace, w->host->log);
    workspace_free(w->data.own_ws);
    corpus_close(&w->data.own_corpus);
    worker_cache_close(&w->data.cache, w->host->log);
    job_free(w->found);
    job_free(w->job);
    arena_release(&w->arena);
    free(w);
    return rc;
}
