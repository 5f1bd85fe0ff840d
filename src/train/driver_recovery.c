/* Driver recovery: rebuilds the ledger and the progress from the workers' recovery reports. */
#include "base/plural.h"
#include "train/driver.h"

#include <inttypes.h>

/* Repeated samples have the offsets of their first use, so they are counted separately. */
static void sum_of_repeated(struct driver *d, const struct view *view, const struct progress *all)
{
    struct ledger *ledger = &d->ledger;
    uint64_t repeated_sum = 0, departed_nodes = 0, repeated = 0;
    for (size_t i = 0; i < view->count; i++) {
        const struct recovery_report *report = &d->recovery.report[view->node[i]];
        d->ledger.own[view->node[i]].repeated_by = report->lease.repeated;
        repeated_sum += report->lease.repeated;
        departed_nodes = report->departed_totals[DEPARTED_REPEATED_BY] > departed_nodes
                             ? report->departed_totals[DEPARTED_REPEATED_BY]
                             : departed_nodes;
        repeated = report->departed_totals[DEPARTED_REPEATED] > repeated
                       ? report->departed_totals[DEPARTED_REPEATED]
                       : repeated;
    }
    ledger->repeated_leases = repeated_sum + departed_nodes < all->sample_offset
                                  ? repeated_sum + departed_nodes
                                  : all->sample_offset;
    ledger->used = all->sample_offset - ledger->repeated_leases;
    lease_server_recover(&d->leases, view, d->recovery.report, ledger->used,
                         repeated + repeated_sum);
    ledger_lease(ledger, &d->leases.table);
}

void driver_resume_with(struct driver *d, const struct view *view)
{
    struct ledger *ledger = &d->ledger;
    struct progress progress = d->progress->recover(d, view);
    ledger_resume(ledger, &progress);
    if (d->traits.takes_leases)
        sum_of_repeated(d, view, &progress);
    d->start.resumed.progress = progress;
    d->start.resumed.used = ledger->used;
    d->start.resumed.missed = ledger->missed;
    d->reports.meter.offset = progress.sample_offset;
    d->start.resumes = true;
    driver_open_counts(d);
    log_info(d->host->log,
             "resumes with %zu worker%s back, after exchange %" PRIu64 " at epoch %.2f",
             view->count, plural(view->count, "s"), progress.exchanges,
             (double)progress.sample_offset / (double)d->data.epoch_records);
    cJSON *event = events_new(&d->events, "back");
    cJSON_AddNumberToObject(event, "incarnation", d->claim.term.incarnation);
    cJSON_AddNumberToObject(event, "workers", (double)view->count);
    cJSON_AddNumberToObject(event, "exchanges", (double)progress.exchanges);
    cJSON_AddNumberToObject(event, "place", (double)progress.sample_offset);
    cJSON_AddNumberToObject(event, "used", (double)ledger->used);
    cJSON_AddNumberToObject(event, "missed", (double)ledger->missed);
    events_emit(&d->events, event);
}
