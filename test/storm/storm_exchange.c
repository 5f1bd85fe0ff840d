/* Invariants of exchanges: no two members of a view have different results for one exchange of a
 * lane; and a result is the mean of the contributions that counted, all of them from members of the
 * view in which it was made. */
#include "base/hash.h"
#include "storm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE 2e-5 /* of the largest number: sums in another order */

static uint64_t bit_of(uint32_t slot)
{
    return UINT64_C(1) << slot;
}

static int name_of(uint32_t slot)
{
    return slot == NODES_MAX ? -1 : (int)slot;
}

/* ---- what is given ---- */

static void record_entry(struct storm *s, struct lane_watch *lane, const struct exchange *e,
                         uint64_t n)
{
    struct entry *entry = &lane->entry[n & 1];
    size_t floats = e->input.n;
    /* A leaf has abandoned its exchange, and may repeat it with another input. It may have been one
     * in a view that it left again within one event. */
    bool again = e->config.once ||
                 (e->group->world->self != WORLD_DRIVER && group_was_leaf(e->group, entry->view));
    if (entry->n == n && !again)
        return;
    if (entry->floats != floats) {
        free(entry->input);
        entry->input = malloc((floats ? floats : 1) * sizeof(float));
        entry->floats = floats;
    }
    if (!entry->input) {
        storm_break(s, "the storm itself: out of memory");
        return;
    }
    entry->n = n;
    entry->view = e->synced;
    entry->weight = e->mine.weight;
    entry->samples = e->mine.samples;
    memcpy(entry->input, e->input.at, floats * sizeof(float));
}

/* ---- what comes of it ---- */

static const struct entry *entry_of(const struct storm *s, uint32_t slot, uint32_t lane, uint64_t n)
{
    const struct entry *entry = &s->node[slot].lane[lane].entry[n & 1];
    return entry->n == n ? entry : NULL;
}

/* Node by node, since a loop over the floats of one is a fast one. */
static void check_mean(struct storm *s, const struct exchange *e, uint64_t n, const float *x,
                       const struct exchange_meta *t)
{
    enum { PART = 256 };
    double worst = 0;
    float largest = 0;
    if (e->config.plain || e->config.split != EXCHANGE_WHOLE || e->config.codec != CODEC_F32 ||
        t->weight <= 0)
        return;
    for (size_t from = 0; from < e->input.n; from += PART) {
        size_t len = e->input.n - from < PART ? e->input.n - from : PART;
        double sum[PART] = {0};
        float large[PART] = {0};
        for (uint32_t k = 0; k < NODES_MAX; k++) {
            if (!members_has(&t->contributors, k))
                continue;
            const struct entry *entry = entry_of(s, k, e->lane, n);
            for (size_t i = 0; i < len; i++) {
                float given = entry->input[from + i], size = fabsf(given);
                sum[i] += entry->weight * (double)given;
                large[i] = size > large[i] ? size : large[i];
            }
        }
        for (size_t i = 0; i < len; i++) {
            double off = fabs(sum[i] / t->weight - (double)x[from + i]);
            worst = off > worst ? off : worst;
            largest = large[i] > largest ? large[i] : largest;
        }
    }
    if (!(worst <= CLOSE * (double)largest + 1e-12))
        storm_break(s,
                    "exchange %" PRIu64 " of lane %u is not the mean of what was given: off by "
                    "%g of %g",
                    n, e->lane, worst, (double)largest);
}

/* It has just been made in this view. */
static void check_made(struct storm *s, const struct exchange *e, uint64_t n, const float *x,
                       const struct exchange_meta *t)
{
    bool known;
    uint64_t members = watch_view(s, e->synced, &known);
    double weight = 0;
    uint64_t samples = 0;
    for (uint32_t k = 0; k < NODES_MAX; k++) {
        if (!members_has(&t->contributors, k))
            continue;
        const struct entry *entry = entry_of(s, k, e->lane, n);
        if (known && !(members & bit_of(k)))
            storm_break(s,
                        "exchange %" PRIu64 " of lane %u counts worker %u, which view %u does "
                        "not hold",
                        n, e->lane, k, e->synced);
        if (!entry)
            storm_break(s, "exchange %" PRIu64 " of lane %u counts worker %u, which gave nothing",
                        n, e->lane, k);
        if (!entry)
            return;
        weight += entry->weight;
        samples += entry->samples;
    }
    if (!(fabs(weight - t->weight) <= 1e-9 * fabs(weight)) || samples != t->samples)
        storm_break(s,
                    "exchange %" PRIu64 " of lane %u says weight %g and %" PRIu64 " records, "
                    "given were %g and %" PRIu64,
                    n, e->lane, t->weight, t->samples, weight, samples);
    else
        check_mean(s, e, n, x, t);
}

/* Those of a lane are in order, the newest first: a node that was cut off makes an exchange of long
 * ago when others are further. */
static struct result *result_new(struct storm *s, uint32_t lane, uint64_t n)
{
    struct result **place = &s->results;
    for (struct result *o = s->results; o && !(o->lane == lane && o->n <= n); o = o->next)
        if (o->lane == lane)
            place = &o->next;
    struct result *r = calloc(1, sizeof *r);
    if (!r) {
        storm_break(s, "the storm itself: out of memory");
        return NULL;
    }
    r->lane = lane;
    r->n = n;
    r->next = *place;
    *place = r;
    return r;
}

/* A node that was a leaf after it got a result, or lost its slice: others may have repeated the
 * exchange (F6, L1). */
static bool was_out_since(const struct storm *s, uint32_t slot, uint32_t view, uint32_t until)
{
    bool out = false;
    for (uint32_t i = 0; i < s->views && slot < NODES_MAX; i++)
        out |= s->view[i].number > view && s->view[i].number <= until &&
               (~s->view[i].participants | s->view[i].fresh) & bit_of(slot);
    return out;
}

/* Two nodes that are both in the later of the views in which they got a result. */
static bool must_agree(const struct storm *s, const struct result *r, uint32_t a, uint32_t b,
                       uint32_t view)
{
    bool known;
    uint32_t later = r->view_of[a] > view ? r->view_of[a] : view;
    uint64_t members = watch_view(s, later, &known) | bit_of(NODES_MAX);
    return known && members & bit_of(a) && members & bit_of(b) &&
           !was_out_since(s, a, r->view_of[a], later) && !was_out_since(s, b, view, later);
}

static void record_result(struct storm *s, uint32_t slot, const struct exchange *e, uint64_t n)
{
    const struct vec *x = &e->result[n & 1];
    const struct exchange_meta *t = &e->meta[n & 1];
    uint64_t hash = hash_bytes(x->at, x->n * sizeof(float));
    struct result *same = NULL;
    /* A leaf that does not know yet that it is one: others may be further, and their
     * contributions to this exchange are forgotten. */
    bool late =
        slot < NODES_MAX && s->views > 0 && !(s->view[s->views - 1].participants & bit_of(slot));
    for (struct result *r = s->results; r; r = r->next) {
        if (r->lane == e->lane && r->n < n)
            break;
        if (r->lane != e->lane || r->n != n)
            continue;
        if (r->hash == hash && r->samples == t->samples)
            same = r;
        for (uint32_t k = 0; r->hash != hash && k <= NODES_MAX; k++)
            if (r->nodes & bit_of(k) && must_agree(s, r, k, slot, e->synced))
                storm_break(s,
                            "two results of exchange %" PRIu64 " of lane %u: %d's of view %u "
                            "and %d's of view %u",
                            n, e->lane, name_of(k), r->view_of[k], name_of(slot), e->synced);
    }
    if (!same) {
        if (!late)
            check_made(s, e, n, x->at, t);
        same = result_new(s, e->lane, n);
        if (!same)
            return;
        same->hash = hash;
        same->samples = t->samples;
        storm_report(s,
                     "%d makes exchange %" PRIu64 " of lane %u in view %u: %016" PRIx64 ", %" PRIu64
                     " records",
                     name_of(slot), n, e->lane, e->synced, hash, t->samples);
    }
    same->nodes |= bit_of(slot);
    same->view_of[slot] = e->synced;
    same->view = e->synced > same->view ? e->synced : same->view;
}

/* Two exchanges of a lone member in one event: the input of the first is gone, its result is not.
 */
static void record_unseen(struct storm *s, const struct exchange *e, uint64_t n)
{
    struct result *r = s->results;
    while (r && !(r->lane == e->lane && r->n == n))
        r = r->next;
    r = r ? NULL : result_new(s, e->lane, n);
    if (!r)
        return;
    r->hash = hash_bytes(e->result[n & 1].at, e->result[n & 1].n * sizeof(float));
    r->samples = e->meta[n & 1].samples;
    r->view = e->synced;
}

void watch_exchanges(struct storm *s, uint32_t slot)
{
    for (uint32_t l = 0; l < LANES_WATCHED; l++) {
        struct lane_watch *lane = &s->node[slot].lane[l];
        const struct exchange *e = lane->e;
        if (!e)
            continue;
        if (lane->seen != e || (e->config.once && e->standing == LANE_UNKNOWN)) {
            lane->seen = e;
            lane->completed = e->completed;
        }
        if (e->completed < lane->completed)
            storm_break(s, "%d goes back from exchange %" PRIu64 " of lane %u to %" PRIu64,
                        name_of(slot), lane->completed, l, e->completed);
        if (e->completed > lane->completed) {
            if (e->completed == lane->completed + 1 && e->mine.weight > 0 &&
                e->stage == EXCHANGE_IDLE)
                record_entry(s, lane, e, e->completed); /* alone, it waits for no node */
            if (e->completed == lane->completed + 2)
                record_unseen(s, e, e->completed - 1);
            lane->completed = e->completed;
            record_result(s, slot, e, e->completed);
        }
        if (e->stage == EXCHANGE_COLLECTING || e->stage == EXCHANGE_REDUCING)
            record_entry(s, lane, e, e->completed + 1);
    }
}
