/* The end of a run: writes the report, releases the workers, and ends the tasks in order. */
#include "train/bad_report.h"
#include "train/describe.h"
#include "train/driver.h"
#include "train/driver_stop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Send to all members. true: every member that can be reached has the message. */
bool driver_send_to_all(struct driver *d, enum wire_kind kind, const struct buf *bytes)
{
    const struct view *view = group_view(&d->group);
    bool reported = true;
    for (size_t i = 0; view && i < view->count; i++) {
        int rc = driver_send(d, view->node[i], kind, bytes);
        reported &= rc == OK || rc == ERR_PEER;
    }
    return reported;
}

void driver_drain_events(struct driver *d, int64_t patience)
{
    for (;;) {
        struct wait_for event = events_wait(&d->events);
        struct wake wake;
        if (world_wait(d->world, &event, 1, world_now(d->world) + patience, &wake) != OK)
            return;
        d->options->line(d->options->user, events_line(wake.msg));
        message_unref(wake.msg);
    }
}

/* All other tasks have ended, so every event has been sent. */
static void drain_events(struct driver *d)
{
    driver_drain_events(d, WORLD_SECOND / 1000);
}

/* The reason for the end. An early reason counts only if the run had not reached its own end. */
static const char *reason_of(struct driver *d)
{
    const Paceline__Stop *stop = d->job->stop;
    const struct progress *progress = &d->model_writer.at;
    const char *early = atomic_load(&d->ending.reason);
    if (!strategy_done(d->job, progress, d->data.epoch_records))
        return early ? early : "interrupted"; /* no reason: all workers were asked to leave */
    return stop->has_steps && progress->steps >= stop->steps ? "steps" : "epochs";
}

/* All workers were asked to leave and have handed the model over. The run ends so that it can be
 * resumed with others. */
int driver_check_deserted(struct driver *d)
{
    bool done = strategy_done(d->job, &d->model_writer.at, d->data.epoch_records);
    if (done || atomic_load(&d->ending.reason) || d->model_writer.elsewhere ||
        !d->options->lost_all || !d->options->dir)
        return OK;
    d->ending.deserted = d->ending.resumable = true;
    return err_set(d->err, ERR_PEER, "all workers have left");
}

/* With local_data samples are repeated and missed by the holdings they belong to. */
static void count_holdings(struct driver *d, struct train_report *report)
{
    uint64_t samples = d->ledger.last.progress.sample_offset;
    const struct holding_count sum = holdings_sum(&d->holdings, samples);
    report->repeated = sum.repeated;
    report->missed = sum.missed;
    driver_report_holdings(d);
}

static void fill_report(struct driver *d, struct train_report *report)
{
    const struct objectives *o = &d->model_writer.objectives;
    const struct model_writer *k = &d->model_writer;
    const struct progress *progress = &k->at;
    double t = events_seconds(&d->events);
    bool evaluated = !d->ending.over && model_writer_has_evaluated(k, progress);
    *report = (struct train_report){
        .reason = reason_of(d),
        .has_validation = evaluated && d->data.corpus->set[SET_VALIDATION].count > 0,
        .has_test = evaluated && d->data.corpus->set[SET_TEST].count > 0,
        .validation_error = o->last[SET_VALIDATION].error,
        .test_error = o->last[SET_TEST].error,
        .validation_loss = o->last[SET_VALIDATION].loss,
        .test_loss = o->last[SET_TEST].loss,
        .epochs = (double)progress->sample_offset / (double)d->data.epoch_records,
        .samples = d->ledger.used - d->start.resumed.used,
        .used = d->ledger.used,
        .repeated = d->ledger.repeated,
        .missed = d->ledger.missed,
        .rejected = d->ledger.rejected,
        .batch = driver_batch(d),
        .wall_s = t,
        .session_s = t - d->events.before,
        .data_s = d->ledger.data_s,
        .cache = ledger_cached(&d->ledger),
        .seed = d->job->seed,
        .has_train = !isnan(d->ledger.mean_loss),
        .train_loss = d->ledger.mean_loss,
        .strategy = d->strategy->name,
        .workers = d->membership.last,
        .parameters = driver_parameters(d),
        .simulated = d->options->simulated,
        .elsewhere = k->elsewhere,
    };
    if (d->job->local_data)
        count_holdings(d, report);
    snprintf(report->model, sizeof report->model, "%s", k->final_path);
    if (!k->elsewhere && report->model[0])
        report->model_name = strlen(d->options->dir->path) + 1;
}

static const char *name_failure(int rc)
{
    return rc == ERR_STOP ? "interrupted" : "failed";
}

/* The last event of a failed run lists the files that it leaves. */
static void report_failure(struct driver *d, int rc)
{
    cJSON *event = events_new(&d->events, "end");
    cJSON_AddStringToObject(event, "reason", name_failure(rc));
    cJSON_AddStringToObject(event, "error", d->err ? d->err->text : "");
    events_emit(&d->events, event);
}

/* Send `bye` to the members and to standby workers. */
static void release_workers(struct driver *d, const char *reason)
{
    const struct roster *roster = &d->server.roster;
    server_stop(&d->server); /* first, or it would take the workers' ends for deaths */
    if (d->ending.released)
        return;
    d->ending.released = true;
    struct buf bytes = {0};
    buf_put_text(&bytes, reason);
    driver_send_to_all(d, WIRE_BYE, &bytes);
    for (size_t i = 0; i < roster->count; i++)
        if (roster->member[i].state == MEMBER_WAITS || roster->member[i].state == MEMBER_RETURNED)
            driver_send(d, roster->member[i].node, WIRE_BYE, &bytes);
    buf_release(&bytes);
}

/* Have workers reconnected to this driver before it made a view with them? Their state is newer
 * than any checkpoint, so the run is left to a later driver. */
static bool have_workers_reconnected(const struct driver *d)
{
    const struct roster *roster = &d->server.roster;
    bool back = false;
    for (size_t i = 0; d->group.world && i < roster->count; i++)
        back |= roster->member[i].state == MEMBER_RETURNED;
    return back && !group_view(&d->group);
}

/* End the driver part, the bootstrap server and the connectivity checker. */
static int end_tasks(struct driver *d)
{
    int part_rc = OK;
    driver_end_arrivals(d);
    if (d->part.task)
        world_cancel(d->world, d->part.task);
    bootstrap_serve_stop(&d->start.server);
    connectivity_stop(d->membership.connectivity);
    if (d->part.task)
        world_join(d->world, d->part.task, WORLD_FOREVER, &part_rc);
    d->part.task = NULL;
    publisher_release(&d->part.publisher);
    return part_rc == ERR_CANCELLED ? OK : part_rc;
}

/* The final model is safe in a fallback location, so the workers are released; the driver waits
 * until the model can be written where it belongs. */
int driver_await_model(struct driver *d)
{
    int rc = end_tasks(d);
    if (rc != OK)
        return err_set(d->err, rc, "the driver's part ended: %s", status_text(rc));
    release_workers(d, reason_of(d));
    while (rc == OK && d->model_writer.task) {
        const struct wait_for set[] = {events_wait(&d->events),
                                       {.kind = WAIT_TASK, .task = d->model_writer.task}};
        struct wake wake;
        if (d->options->tick)
            d->options->tick(d->options->user);
        rc = driver_check_replaced(d);
        if (rc == OK)
            rc = world_wait(d->world, set, 2, world_now(d->world) + WORLD_SECOND / 10, &wake);
        if (rc == ERR_TIMEOUT) {
            rc = OK;
        } else if (rc == OK && wake.which == 0) {
            d->options->line(d->options->user, events_line(wake.msg));
            message_unref(wake.msg);
        } else if (rc == OK) {
            rc = driver_on_task_end(d, &d->model_writer.task, "model writer");
        }
    }
    return rc;
}

/* The final model may be the driver part's, which took part in the last exchange. That exchange
 * counts, also if the workers were lost before their reports of it arrived. */
static void count_final_model(struct driver *d)
{
    const struct progress *final = &d->model_writer.at;
    ledger_close(&d->ledger);
    if (!d->progress->asynchronous && final->exchanges > d->ledger.last.progress.exchanges)
        ledger_resume(&d->ledger, final);
}

/* End the tasks one after another. The first error is the run's error. */
int driver_close(struct driver *d, int rc, struct train_report *report)
{
    int part_rc;
    driver_keep_state(d, rc);
    if (d->part.task)
        world_cancel(d->world, d->part.task);
    world_end_task(d->world,
                   &d->model_writer.task); /* it has ended already, unless the run failed */
    part_rc = end_tasks(d);
    if (rc == OK && part_rc != OK)
        rc = err_set(d->err, part_rc, "the driver's part ended: %s", status_text(part_rc));
    bool repeated = rc != OK && d->ending.resumable,
         taken_over = rc != OK && have_workers_reconnected(d);
    bool over = rc != ERR_FENCED && !repeated && !taken_over; /* otherwise a later driver continues
                                                                 the run */
    if (repeated)
        *d->options->lost_all = true;
    if (d->group.world && over)
        release_workers(d, rc == OK ? reason_of(d) : name_failure(rc));
    else
        server_stop(&d->server);
    if (d->events.world) {
        count_final_model(d);
        driver_report_loss(d, true);
    }
    if (rc == OK) {
        fill_report(d, report);
        driver_sum_bad_records(d, report);
        describe_chance_end(d);
        train_report_event(&d->events, report);
    } else if (d->events.world && !repeated && rc != ERR_FENCED) { /* a replaced driver writes no
                                                                      events */
        report_failure(d, rc);
    }
    if (d->events.world)
        drain_events(d);
    /* The run ended in good order, so no later driver waits for its workers. If all were lost
     * without a reason, this driver may have been cut off: the workers continue and call the next
     * one. */
    if (rc != ERR_CANCELLED && d->events.world && !d->ending.over && !d->ending.unseen &&
        !taken_over && (!repeated || d->ending.deserted))
        driver_leave(d);
    tracer_stop(&d->reports.tracer, d->host->log);
    return rc;
}
