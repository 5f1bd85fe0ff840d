/* Driver recovery: rebuilds the ledger and the progress from the workers' recovery reports. */
#include "base/plural.h"
#include "train/driver.h"

#include <inttypes.h>

/* Repeated samples have the offsets of their first use, so they are counted separately. */
static void recover_leases(struct driver *d, const struct view *view, const struct progress *all)
{
    struct ledger *ledger = &d->ledger;
    const struct members members = view_members(view);
    const struct recovery_sum sum = recovery_sum(d->recovery.report, &members, all);
    MEMBERS_EACH (node, &members)
        ledger->own[node].repeated_by = d->recovery.report[node].lease.repeated;
    ledger->repeated_leases = sum.repeated_leases;
    ledger->used = all->sample_offset - ledger->repeated_leases;
    lease_server_recover(&d->leases, view, d->recovery.report, ledger->used, sum.repeated);
    ledger_lease(ledger, &d->leases.table);
}

void driver_resume_with(struct driver *d, const struct view *view)
{
    struct ledger *ledger = &d->ledger;
    struct progress progress = d->progress->recover(d, view);
    ledger_resume(ledger, &progress);
    if (d->traits.takes_leases)
        recover_leases(d, view, &progress);
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
