/* Adds the members' reports to the driver's ledger, and requests the models that are due by it. */
#include "train/describe.h"
#include "train/driver.h"
#include "train/driver_stop.h"
#include "wire/wire_send.h"

#include <stdlib.h>
#include <string.h>

#define LOSS_EVERY_S 1.0

void driver_snapshot_books(struct driver *d, bool final)
{
    struct buf leases = {0}, holdings = {0};
    if (!d->traits.takes_leases && !d->job->local_data)
        return;
    if (d->traits.takes_leases)
        lease_write(&d->leases.table, &leases);
    if (d->job->local_data)
        holdings_write(&d->holdings, &holdings);
    if (leases.failed || holdings.failed) {
        buf_release(&leases);
        buf_release(&holdings);
        return;
    }
    model_writer_give_books(&d->model_writer, final,
                            &(struct book_texts){(char *)leases.data, (char *)holdings.data});
}

/* Record a checkpoint request to checkpoint_of, if it was sent. */
static void await_checkpoint(struct driver *d, int requested)
{
    d->requests.awaits_checkpoint = requested == OK;
    d->requests.taken_before = atomic_load(&d->model_writer.taken);
}

void driver_request_model_of(struct driver *d, uint32_t node, uint32_t uses)
{
    bool checkpoint = uses & MODEL_CHECKPOINT;
    struct buf bytes = {0};
    if (uses & (MODEL_CHECKPOINT | MODEL_FINAL))
        driver_snapshot_books(d, uses & MODEL_FINAL);
    buf_put_u32(&bytes, uses);
    atomic_store(&d->requests.sample_offset, atomic_load(&d->counts.sample_offset));
    atomic_store(&d->requests.steps, atomic_load(&d->counts.steps));
    atomic_store(&d->requests.exchanges, atomic_load(&d->counts.exchanges));
    if (checkpoint) /* before it can reply */
        atomic_store(&d->requests.checkpoint_of, node);
    int rc = driver_send(d, node, WIRE_WANT_MODEL, &bytes);
    if (checkpoint)
        await_checkpoint(d, rc);
    buf_release(&bytes);
}

void driver_request_model(struct driver *d, uint32_t uses)
{
    const struct view *view = group_view(&d->group);
    if (d->traits.workers_hold_model) {
        const struct members holders = view_participants(view);
        if (view->count > 0)
            driver_request_model_of(d, members_next(&holders, 0), uses);
        return;
    }
    if (uses & (MODEL_CHECKPOINT | MODEL_FINAL))
        driver_snapshot_books(d, uses & MODEL_FINAL);
    atomic_store(&d->requests.checkpoint_of, WORLD_DRIVER);
    if (uses & MODEL_CHECKPOINT)
        await_checkpoint(d, OK);
    atomic_fetch_or(&d->requests.uses, uses);
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

/* A worker without a name of its machine is in a simulation, on one of its own. */
static bool is_on_driver_host(const struct driver *d, uint32_t node)
{
    const char *host = d->membership.location[node].host;
    return host[0] && d->host->name && strcmp(host, d->host->name) == 0;
}

static struct ledger_seen look_at(struct driver *d, uint32_t node, uint32_t waited_for)
{
    int64_t now = world_now(d->world);
    return (struct ledger_seen){
        .evaluated_s = model_writer_evaluated(&d->model_writer),
        .silent_s = server_longest_silence(&d->server, node, now),
        .waited_for_silent_s = server_silence(&d->server, waited_for, now),
        .on_driver_host = is_on_driver_host(d, node),
    };
}

void driver_on_committed(struct driver *d, const struct message *m)
{
    struct byte_reader in = {m->data, m->len, false};
    struct committed report;
    int rc = committed_decode(&in, &report);
    const struct view *first = group_first_view(&d->group);
    if (!d->counts.begun &&
        (!first || first->number > 1)) { /* a returned member trains on while the
                                                         driver still waits for others */
        if (rc == OK)
            d->progress->on_early_report(d, m->from, &report);
        return;
    }
    bool leased = d->traits.takes_leases;
    const char *fault = rc != OK                                ? "it cannot be read"
                        : !group_was_member(&d->group, m->from) ? "it is no member"
                        : report.asynchronous != d->progress->asynchronous
                            ? "it is of another kind of strategy"
                            : NULL;
    if (fault)
        wire_guard_count(&d->group.guard, m->from, WIRE_COMMITTED, fault);
    if (fault || (leased && !on_lease_report(d, m->from, &report.lease)))
        return;
    d->ledger.seen = look_at(d, m->from, report.cost.waited_for);
    ledger_report(&d->ledger, m->from, &report);
    driver_check_refused(d);
    if (d->job->local_data)
        driver_take_holdings(d, m->from, &report);
    if (leased)
        ledger_lease(&d->ledger, &d->leases.table);
    display_report(&d->reports.display, &d->ledger, d->job, d->data.epoch_records,
                   job_is_alone(d->job) && d->ledger.last.n == 0, d->host->log);
    driver_update_model_writer(d);
    describe_chance(d);
    driver_record_commit(d, &d->ledger.last.progress);
    d->progress->on_report(d);
}

void driver_report_progress(struct driver *d)
{
    struct train_progress p;
    const struct view *view = group_view(&d->group);
    if (!view || !d->options->progress ||
        !progress_meter_poll(&d->reports.meter, &d->events, &d->ledger, d->job,
                             d->data.epoch_records, &p))
        return;
    p.workers = (uint32_t)view->count;
    if (d->counts.commits > 0)
        p.commit_t = p.t - world_seconds(world_now(d->world) - d->counts.commit_at);
    p.error = atomic_load(&d->model_writer.last_error);
    d->progress->add_local(d, view, &p);
    d->options->progress(d->options->user, &p);
}

uint64_t driver_batch(const struct driver *d)
{
    return job_shares_batch(d->job)
               ? strategy_step_samples(d->job, &d->ledger.last.progress, d->data.epoch_records)
               : 0;
}

void driver_report_loss(struct driver *d, bool now)
{
    const struct progress *progress = &d->ledger.last.progress;
    size_t records = d->data.epoch_records;
    uint64_t evaluations = atomic_load(&d->model_writer.evaluations);
    double t = events_seconds(&d->events);
    if (!now && t < d->reports.next_loss && evaluations == d->reports.evaluations)
        return;
    if (ledger_report_loss(&d->ledger, (double)progress->sample_offset / (double)records,
                           display_rate(d->job, progress, records), driver_batch(d)))
        d->reports.next_loss = t + LOSS_EVERY_S;
    d->reports.evaluations = evaluations;
}

uint64_t driver_parameters(const struct driver *d)
{
    const struct segments *x = d->layout.x;
    uint64_t sum = 0;
    for (size_t i = 0; i < x->count; i++)
        sum += x->at[i].len;
    return sum;
}
