/* A driver that has died and come back: what its workers say of themselves becomes its book. */
#include "base/plural.h"
#include "train/driver.h"

#include <inttypes.h>
#include <string.h>

/* What they went over again is in the same places. */
static void sum_of_again(struct driver *d, const struct view *view, const struct course *all)
{
    struct ledger *ledger = &d->ledger;
    uint64_t again = 0, gone = 0, repeated = 0;
    for (size_t i = 0; i < view->count; i++) {
        const struct comeback *back = &d->back[view->node[i]];
        d->ledger.own[view->node[i]].again = back->lease.repeated;
        again += back->lease.repeated;
        gone = back->aside[ASIDE_AGAIN] > gone ? back->aside[ASIDE_AGAIN] : gone;
        repeated = back->aside[ASIDE_REPEATED] > repeated ? back->aside[ASIDE_REPEATED] : repeated;
    }
    ledger->again = again + gone < all->place ? again + gone : all->place;
    ledger->used = all->place - ledger->again;
    leases_return(&d->leases, view, d->back, ledger->used, repeated + again);
    ledger_lease(ledger, &d->leases.book);
}

/* What all together have done that run free: each itself, and those that are there no more. */
static struct course sum_of_free(struct driver *d, const struct view *view)
{
    struct course all = {.place = 0};
    uint64_t aside[ASIDE_COUNT] = {0};
    for (size_t i = 0; i < view->count; i++) {
        const struct comeback *back = &d->back[view->node[i]];
        d->ledger.own[view->node[i]].samples = back->samples;
        d->ledger.own[view->node[i]].exchanges = back->exchanges;
        all.place += back->samples;
        all.exchanges += back->exchanges;
        for (int k = 0; k < ASIDE_COUNT; k++)
            aside[k] = back->aside[k] > aside[k] ? back->aside[k] : aside[k];
    }
    all.place += aside[ASIDE_SAMPLES];
    all.exchanges += aside[ASIDE_EXCHANGES];
    /* Who died with the driver is in neither sum, but what it had reported is in the checkpoint. */
    if (all.place < d->resumed.course.place)
        all.place = d->resumed.course.place;
    if (all.exchanges < d->resumed.course.exchanges)
        all.exchanges = d->resumed.course.exchanges;
    d->others = all.place;
    for (size_t i = 0; i < view->count; i++)
        d->others -= d->back[view->node[i]].samples;
    all.used = all.place;
    all.steps = all.place / d->ledger.step_samples;
    return all;
}

/* Of workers in step: who is furthest knows best. */
static struct course furthest(struct driver *d, const struct view *view)
{
    const struct comeback *best = &d->back[view->node[0]];
    for (size_t i = 1; i < view->count; i++)
        if (d->back[view->node[i]].course.exchanges > best->course.exchanges)
            best = &d->back[view->node[i]];
    d->back_told = best->words > 0;
    memcpy(d->back_word, best->word, sizeof d->back_word);
    bool further = !strategy_leads(d->strategy, d->job) && /* these complete none without us */
                   d->early.exchanges > best->course.exchanges;
    return further ? d->early : best->course;
}

void driver_go_on_with(struct driver *d, const struct view *view)
{
    struct ledger *ledger = &d->ledger;
    bool free = strategy_runs_free(d->strategy, d->job);
    struct course course = free ? sum_of_free(d, view) : furthest(d, view);
    ledger_go_on(ledger, &course);
    if (strategy_leases(d->strategy, d->job))
        sum_of_again(d, view, &course);
    d->resumed.course = course;
    d->resumed.used = ledger->used;
    d->resumed.missed = ledger->missed;
    d->meter.place = course.place;
    d->goes_on = true;
    driver_open_counts(d);
    log_info(d->host->log,
             "goes on with %zu worker%s back, after exchange %" PRIu64 " at epoch %.2f",
             view->count, plural(view->count, "s"), course.exchanges,
             (double)course.place / (double)d->corpus->set[SET_TRAIN].count);
    cJSON *event = events_new(&d->events, "back");
    cJSON_AddNumberToObject(event, "incarnation", d->tenure.incarnation);
    cJSON_AddNumberToObject(event, "workers", (double)view->count);
    cJSON_AddNumberToObject(event, "exchanges", (double)course.exchanges);
    cJSON_AddNumberToObject(event, "place", (double)course.place);
    cJSON_AddNumberToObject(event, "used", (double)ledger->used);
    cJSON_AddNumberToObject(event, "missed", (double)ledger->missed);
    events_emit(&d->events, event);
}
