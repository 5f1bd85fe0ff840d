/* Adds the members' reports to the driver's ledger, and requests the models that are due by it. */
#include "train/describe.h"
#include "train/driver.h"
#include "train/driver_stop.h"
#include "wire/wire_send.h"

#include <stdlib.h>

#define LOSS_EVERY_S 1.0

void driver_snapshot_leases(struct driver *d, bool final)
{
    struct buf text = {0};
    if (!d->traits.takes_leases)
        return;
    lease_write(&d->leases.table, &text);
    if (text.failed)
        buf_release(&text);
    else
        free(atomic_exchange(final ? &d->model_writer.leases_final : &d->model_writer.leases_given,
                             (char *)text.data));
}

/* Record a checkpoint request to checkpoint_of, if it was sent. */
static void await_checkpoint(struct driver *d, int requested)
{
    d->awaits_checkpoint = requested == OK;
    d->taken_before = atomic_load(&d->model_writer.taken);
}

void driver_request_model_of(struct driver *d, uint32_t node, uint32_t uses)
{
    bool checkpoint = uses & MODEL_CHECKPOINT;
    struct buf bytes = {0};
    if (uses & (MODEL_CHECKPOINT | MODEL_FINAL))
        driver_snapshot_leases(d, uses & MODEL_FINAL);
    buf_put_u32(&bytes, uses);
    atomic_store(&d->requested_offset, atomic_load(&d->sample_offset));
    atomic_store(&d->requested_steps, atomic_load(&d->steps));
    atomic_store(&d->requested_exchanges, atomic_load(&d->exchanges));
    if (checkpoint) /* before it can reply */
        atomic_store(&d->checkpoint_of, node);
    int rc = driver_send(d, node, WIRE_WANT_MODEL, &bytes);
    if (checkpoint)
        await_checkpoint(d, rc);
    buf_release(&bytes);
}

void driver_request_model(struct driver *d, uint32_t uses)
{
    const struct view *view = group_view(&d->group);
    if (d->traits.workers_hold_model) {
        if (view->count > 0)
            driver_request_model_of(d, view->node[0], uses);
        return;
    }
    if (uses & (MODEL_CHECKPOINT | MODEL_FINAL))
        driver_snapshot_leases(d, uses & MODEL_FINAL);
    atomic_store(&d->checkpoint_of, WORLD_DRIVER);
    if (uses & MODEL_CHECKPOINT)
        await_checkpoint(d, OK);
    atomic_fetch_or(&d->model_uses, uses);
}

/* In asynchronous strategies the summed progress decides when the model is evaluated (after so many
 * exchanges, or once an epoch) and when the run ends. */
static void count_async(struct driver *d)
{
    const struct progress *all = &d->ledger.last.progress;
    atomic_store(&d->sample_offset, all->sample_offset);
    atomic_store(&d->steps, all->steps);
    atomic_store(&d->exchanges, all->exchanges);
    size_t records = d->corpus->set[SET_TRAIN].count;
    struct trigger_counts counts = trigger_counts_of(d->job, d->evaluate_every, records, all);
    if (strategy_done(d->job, all, records)) {
        d->complete = true;
        return;
    }
    uint32_t uses = (counts.evaluations > d->triggers_before.evaluations ? MODEL_EVALUATE : 0u) |
                    (counts.snapshots > d->triggers_before.snapshots ? MODEL_SNAPSHOT : 0u);
    if (uses)
        driver_request_model(d, uses);
    d->triggers_before = counts;
}

void driver_update_model_writer(struct driver *d)
{
    const struct ledger *ledger = &d->ledger;
    uint64_t offset = ledger->last.progress.sample_offset;
    atomic_store(&d->model_writer.unused, offset > ledger->used ? offset - ledger->used : 0);
    atomic_store(&d->model_writer.missed, ledger->missed);
    atomic_store(&d->model_writer.repeated, ledger->repeated);
}

/* Publish the counts of departed members with each beat. A later driver adds the members' own
 * counts to them. */
void driver_report_departed(struct driver *d)
{
    const struct view *view = group_view(&d->group);
    uint64_t samples = d->ledger.last.progress.sample_offset,
             exchanges = d->ledger.last.progress.exchanges;
    uint64_t repeated_now = d->ledger.repeated_leases, repeated = d->ledger.repeated;
    for (size_t i = 0; view && i < view->count; i++) {
        const struct ledger_own *own = &d->ledger.own[view->node[i]];
        samples -= own->samples;
        exchanges -= own->exchanges;
        repeated_now -= own->repeated_by;
        repeated -= own->repeated_by;
    }
    atomic_store(&d->server.departed_totals[DEPARTED_SAMPLES], samples);
    atomic_store(&d->server.departed_totals[DEPARTED_EXCHANGES], exchanges);
    atomic_store(&d->server.departed_totals[DEPARTED_REPEATED_BY], repeated_now);
    atomic_store(&d->server.departed_totals[DEPARTED_REPEATED], repeated);
}

/* Process the lease report of an asynchronous worker. false: the driver has reclaimed its leases,
 * so other workers have them and the report does not count. */
static bool on_lease_report(struct driver *d, uint32_t node, const struct lease_report *report)
{
    struct lease_server *leases = &d->leases;
    const struct view *view = group_view(&d->group), *first = group_first_view(&d->group);
    if (!leases->opened && first)
        lease_server_begin(leases, first);
    if (view)
        lease_server_welcome(leases, view);
    if (!lease_server_accepts(leases, node))
        return false;
    lease_server_on_report(leases, node, report);
    return true;
}

void driver_on_committed(struct driver *d, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct committed report;
    bool free = d->traits.is_async;
    int rc = committed_decode(&in, &report);
    const struct view *first = group_first_view(&d->group);
    if (!d->begun && (!first || first->number > 1)) { /* a returned member trains on while the
                                                         driver still waits for others */
        if (rc == OK && !free && report.progress.exchanges > d->early.exchanges)
            d->early = report.progress;
        return;
    }
    bool leased = d->traits.takes_leases;
    if (rc != OK || report.asynchronous != free ||
        (leased && !on_lease_report(d, m->from, &report.lease)))
        return;
    ledger_report(&d->ledger, m->from, &report);
    if (leased)
        ledger_lease(&d->ledger, &d->leases.table);
    display_report(&d->display, &d->ledger, d->job, d->corpus->set[SET_TRAIN].count,
                   job_is_alone(d->job) && d->ledger.last.n == 0, d->host->log);
    driver_update_model_writer(d);
    describe_chance(d);
    driver_record_commit(d, &d->ledger.last.progress);
    if (free) {
        count_async(d);
        driver_report_departed(d);
    }
}

/* Before the first exchange the slowest worker's heartbeats give the progress, since all wait for
 * it. */
static void add_local_steps(struct driver *d, const struct view *view, struct train_progress *p)
{
    uint64_t least = UINT64_MAX;
    double loss = 0;
    if (d->ledger.last.n > d->resumed.progress.exchanges || view->number > 1 || view->count == 0 ||
        job_is_alone(d->job) || d->traits.is_async)
        return;
    for (size_t i = 0; i < view->count; i++) {
        uint32_t node = view->node[i];
        uint64_t steps = atomic_load(&d->server.steps[node]);
        least = steps < least ? steps : least;
        loss += atomic_load(&d->server.local_loss[node]) / (double)view->count;
    }
    progress_meter_add_local(&d->meter, least, d->traits.round, loss, p);
    if (p->first_exchange_s >= 0)
        d->first_exchange_at =
            world_now(d->world) + (int64_t)(p->first_exchange_s * (double)WORLD_SECOND);
}

void driver_report_progress(struct driver *d)
{
    struct train_progress p;
    const struct view *view = group_view(&d->group);
    if (!view || !d->options->progress ||
        !progress_meter_poll(&d->meter, &d->events, &d->ledger, d->job,
                             d->corpus->set[SET_TRAIN].count, &p))
        return;
    p.workers = (uint32_t)view->count;
    p.error = atomic_load(&d->model_writer.last_error);
    add_local_steps(d, view, &p);
    d->options->progress(d->options->user, &p);
}

void driver_report_loss(struct driver *d, bool now)
{
    const struct progress *progress = &d->ledger.last.progress;
    size_t records = d->corpus->set[SET_TRAIN].count;
    uint64_t evaluations = atomic_load(&d->model_writer.evaluations);
    double t = events_seconds(&d->events);
    if (!now && t < d->next_loss && evaluations == d->evaluations)
        return;
    if (ledger_report_loss(&d->ledger, (double)progress->sample_offset / (double)records,
                           display_rate(d->job, progress, records)))
        d->next_loss = t + LOSS_EVERY_S;
    d->evaluations = evaluations;
}

uint64_t driver_parameters(const struct driver *d)
{
    const struct segments *x = d->layout.x;
    uint64_t sum = 0;
    for (size_t i = 0; i < x->count; i++)
        sum += x->at[i].len;
    return sum;
}
