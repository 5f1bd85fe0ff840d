/* Driver recovery: rebuilds the ledger and the progress from the workers' recovery reports. */
#include "base/plural.h"
#include "train/driver.h"

#include <inttypes.h>
#include <string.h>

/* Repeated samples have the offsets of their first use, so they are counted separately. */
static void sum_of_repeated(struct driver *d, const struct view *view, const struct progress *all)
{
    struct ledger *ledger = &d->ledger;
    uint64_t repeated_sum = 0, departed_nodes = 0, repeated = 0;
    for (size_t i = 0; i < view->count; i++) {
        const struct recovery_report *report = &d->recovery[view->node[i]];
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
    lease_server_recover(&d->leases, view, d->recovery, ledger->used, repeated + repeated_sum);
    ledger_lease(ledger, &d->leases.table);
}

/* The sum over all asynchronous workers, those that have left included. */
static struct progress sum_of_async(struct driver *d, const struct view *view)
{
    struct progress all = {.sample_offset = 0};
    uint64_t departed[DEPARTED_COUNT] = {0};
    for (size_t i = 0; i < view->count; i++) {
        const struct recovery_report *report = &d->recovery[view->node[i]];
        d->ledger.own[view->node[i]].samples = report->samples;
        d->ledger.own[view->node[i]].exchanges = report->exchanges;
        all.sample_offset += report->samples;
        all.exchanges += report->exchanges;
        for (int k = 0; k < DEPARTED_COUNT; k++)
            departed[k] =
                report->departed_totals[k] > departed[k] ? report->departed_totals[k] : departed[k];
    }
    all.sample_offset += departed[DEPARTED_SAMPLES];
    all.exchanges += departed[DEPARTED_EXCHANGES];
    /* A worker that died with the driver is in neither sum, but the checkpoint contains its
     * reports. */
    if (all.sample_offset < d->resumed.progress.sample_offset)
        all.sample_offset = d->resumed.progress.sample_offset;
    if (all.exchanges < d->resumed.progress.exchanges)
        all.exchanges = d->resumed.progress.exchanges;
    d->untaken = all.sample_offset;
    for (size_t i = 0; i < view->count; i++)
        d->untaken -= d->recovery[view->node[i]].samples;
    all.samples_used = all.sample_offset;
    all.steps = all.sample_offset / d->ledger.step_samples;
    return all;
}

/* Of synchronous workers, whose progress differs by one exchange at most: the furthest. */
static struct progress furthest_progress(struct driver *d, const struct view *view)
{
    const struct recovery_report *best = &d->recovery[view->node[0]];
    for (size_t i = 1; i < view->count; i++)
        if (d->recovery[view->node[i]].progress.exchanges > best->progress.exchanges)
            best = &d->recovery[view->node[i]];
    d->recovery_reported = best->words > 0;
    memcpy(d->recovery_join_state, best->join_state, sizeof d->recovery_join_state);
    bool further = !d->traits.driver_part && /* those strategies complete no
                                                                exchange without a driver */
                   d->early.exchanges > best->progress.exchanges;
    return further ? d->early : best->progress;
}

void driver_resume_with(struct driver *d, const struct view *view)
{
    struct ledger *ledger = &d->ledger;
    bool free = d->traits.is_async;
    struct progress progress = free ? sum_of_async(d, view) : furthest_progress(d, view);
    ledger_resume(ledger, &progress);
    if (d->traits.takes_leases)
        sum_of_repeated(d, view, &progress);
    d->resumed.progress = progress;
    d->resumed.used = ledger->used;
    d->resumed.missed = ledger->missed;
    d->meter.offset = progress.sample_offset;
    d->resumed_run = true;
    driver_open_counts(d);
    log_info(d->host->log,
             "resumes with %zu worker%s back, after exchange %" PRIu64 " at epoch %.2f",
             view->count, plural(view->count, "s"), progress.exchanges,
             (double)progress.sample_offset / (double)d->corpus->set[SET_TRAIN].count);
    cJSON *event = events_new(&d->events, "back");
    cJSON_AddNumberToObject(event, "incarnation", d->term.incarnation);
    cJSON_AddNumberToObject(event, "workers", (double)view->count);
    cJSON_AddNumberToObject(event, "exchanges", (double)progress.exchanges);
    cJSON_AddNumberToObject(event, "place", (double)progress.sample_offset);
    cJSON_AddNumberToObject(event, "used", (double)ledger->used);
    cJSON_AddNumberToObject(event, "missed", (double)ledger->missed);
    events_emit(&d->events, event);
}
