#include "data/lease.h"

#include "base/fault.h"
#include "base/minmax.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t lease_length(const struct lease *lease)
{
    return lease->to - lease->from;
}

uint64_t lease_size(double step_s, uint64_t grain, uint64_t records, size_t workers)
{
    double steps = step_s > 0 ? LEASE_SECONDS / step_s : LEASE_STEPS_MIN;
    uint64_t n = steps < LEASE_STEPS_MIN   ? LEASE_STEPS_MIN
                 : steps > LEASE_STEPS_MAX ? LEASE_STEPS_MAX
                                           : (uint64_t)(steps + 0.5);
    n = min_size(n, records / (grain * (workers > 0 ? workers : 1)));
    return (n > LEASE_STEPS_LEAST ? n : LEASE_STEPS_LEAST) * grain;
}

bool lease_open(struct lease_table *table, uint64_t frontier, uint64_t lost, uint64_t grain)
{
    PL_ASSERT(grain > 0);
    if (lost > frontier || frontier > LEASE_OFFSET_MAX)
        return false;
    memset(table, 0, sizeof *table);
    table->grain = grain;
    table->frontier = frontier;
    table->used = frontier - lost;
    table->lost = lost;
    return true;
}

static struct lease_holder *holder_of(struct lease_table *table, uint32_t node)
{
    return node < LEASE_NODES_MAX && table->holder[node].here ? &table->holder[node] : NULL;
}

void lease_add_node(struct lease_table *table, uint32_t node)
{
    if (node >= LEASE_NODES_MAX || table->holder[node].here)
        return;
    table->holder[node] = (struct lease_holder){.here = true};
    if (node >= table->nodes)
        table->nodes = node + 1;
}

/* ---- the pool ---- */

static bool are_adjacent(const struct lease *a, const struct lease *b)
{
    return a->to == b->from && a->doubtful == b->doubtful;
}

static void pool_remove(struct lease_table *table, size_t i)
{
    table->pooled--;
    memmove(&table->pool[i], &table->pool[i + 1], (table->pooled - i) * sizeof *table->pool);
}

/* Add a range to the pool, merged with its neighbours. If the pool is full, the range is lost. */
static void pool_add(struct lease_table *table, struct lease lease)
{
    size_t i = 0;
    if (lease.from >= lease.to)
        return;
    while (i < table->pooled && table->pool[i].from < lease.from)
        i++;
    if (i > 0 && are_adjacent(&table->pool[i - 1], &lease)) {
        table->pool[i - 1].to = lease.to;
        if (i < table->pooled && are_adjacent(&table->pool[i - 1], &table->pool[i])) {
            table->pool[i - 1].to = table->pool[i].to;
            pool_remove(table, i);
        }
    } else if (i < table->pooled && are_adjacent(&lease, &table->pool[i])) {
        table->pool[i].from = lease.from;
    } else if (table->pooled == LEASE_POOL_MAX) {
        table->lost += lease_length(&lease);
    } else {
        memmove(&table->pool[i + 1], &table->pool[i], (table->pooled - i) * sizeof *table->pool);
        table->pool[i] = lease;
        table->pooled++;
    }
}

/* Take at most `want` samples from the front of the pool. */
static struct lease pool_cut(struct lease_table *table, uint64_t want)
{
    struct lease *first = &table->pool[0], cut = *first;
    cut.to = cut.from + min_size(want, lease_length(first));
    first->from = cut.to;
    if (first->from == first->to)
        pool_remove(table, 0);
    return cut;
}

/* ---- handing out, and taking back ---- */

static struct lease new_lease(struct lease_table *table, uint64_t size)
{
    struct lease lease = {.from = table->frontier, .to = table->frontier + size};
    table->frontier = lease.to;
    return lease;
}

/* L1: each offset below the frontier is used, lost, held or pooled. */
static bool sums_agree(const struct lease_table *table)
{
    return table->frontier == table->used + table->lost + lease_held(table) + lease_pooled(table);
}

size_t lease_grant(struct lease_table *table, uint32_t node, uint64_t want,
                   struct lease given[LEASE_HELD_MAX])
{
    struct lease_holder *h = holder_of(table, node);
    size_t n = 0;
    uint64_t most = table->most > 0 ? table->most : (uint64_t)LEASE_STEPS_MAX * table->grain;
    PL_ASSERT(h);
    want = min_size(want, most) / table->grain * table->grain;
    want = want > 0 ? want : table->grain;
    while (want > 0 && h->count < LEASE_HELD_MAX) {
        struct lease lease = table->pooled > 0 ? pool_cut(table, want) : new_lease(table, want);
        want -= lease_length(&lease);
        h->held[h->count++] = given[n++] = lease;
    }
    PL_ASSERT(sums_agree(table));
    return n;
}

void lease_grant_first(struct lease_table *table, uint32_t node, uint64_t size)
{
    struct lease_holder *h = holder_of(table, node);
    PL_ASSERT(h && h->count == 0 && size > 0 && size % table->grain == 0);
    h->held[h->count++] = new_lease(table, size);
}

void lease_report_use(struct lease_table *table, uint32_t node, uint64_t taken, uint64_t repeated)
{
    struct lease_holder *h = holder_of(table, node);
    if (h && repeated > h->repeated) {
        table->repeated += repeated - h->repeated;
        h->repeated = repeated;
    }
    while (h && h->count > 0 && h->taken < taken) {
        struct lease *now = &h->held[0];
        uint64_t n = min_size(taken - h->taken, lease_length(now));
        now->from += n;
        h->taken += n;
        table->used += n;
        table->repeated += now->doubtful ? n : 0;
        if (now->from == now->to)
            memmove(now, now + 1, --h->count * sizeof *now);
    }
}

static void return_to_pool(struct lease_table *table, uint32_t node, bool doubtful)
{
    struct lease_holder *h = holder_of(table, node);
    for (size_t i = 0; h && i < h->count; i++) {
        h->held[i].doubtful |= doubtful;
        pool_add(table, h->held[i]);
    }
    if (h)
        *h = (struct lease_holder){.here = false};
    PL_ASSERT(sums_agree(table));
}

void lease_node_leaves(struct lease_table *table, uint32_t node)
{
    return_to_pool(table, node, false);
}

void lease_node_dies(struct lease_table *table, uint32_t node)
{
    return_to_pool(table, node, true);
}

/* ---- a driver that has returned ---- */

static bool overlap_or_touch(const struct lease *a, const struct lease *b)
{
    return a->from < b->to && b->from < a->to;
}

static bool is_free(const struct lease_table *table, const struct lease *lease)
{
    for (uint32_t node = 0; node < table->nodes; node++)
        for (size_t i = 0; i < table->holder[node].count; i++)
            if (overlap_or_touch(&table->holder[node].held[i], lease))
                return false;
    return true;
}

bool lease_node_reconnects(struct lease_table *table, uint32_t node,
                           const struct lease_holder *report, uint64_t high)
{
    bool sound = report->count <= LEASE_HELD_MAX && high <= LEASE_OFFSET_MAX;
    lease_add_node(table, node);
    struct lease_holder *h = holder_of(table, node);
    PL_ASSERT(h && h->count == 0);
    h->taken = report->taken;
    h->repeated = report->repeated;
    for (size_t i = 0; sound && i < report->count; i++) {
        const struct lease *lease = &report->held[i];
        sound = lease->from < lease->to && lease->to <= high &&
                lease_length(lease) % table->grain == 0 && is_free(table, lease);
        if (sound)
            h->held[h->count++] = *lease;
    }
    if (!sound)
        h->count = 0;
    if (sound && high > table->frontier)
        table->frontier = high;
    return sound;
}

void lease_finish_recovery(struct lease_table *table, uint64_t used, uint64_t repeated)
{
    uint64_t held = lease_held(table), known;
    used = min_size(used, LEASE_OFFSET_MAX - held); /* used offsets are distinct */
    known = used + held;
    table->pooled = 0; /* after the checkpoint some of it was granted, and it is unknown which */
    table->used = used;
    table->repeated = repeated;
    if (table->frontier < known)
        table->frontier = known;
    table->lost = table->frontier - known;
}

/* ---- sums ---- */

uint64_t lease_held(const struct lease_table *table)
{
    uint64_t sum = 0;
    for (uint32_t node = 0; node < table->nodes; node++)
        for (size_t i = 0; i < table->holder[node].count; i++)
            sum += lease_length(&table->holder[node].held[i]);
    return sum;
}

uint64_t lease_pooled(const struct lease_table *table)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < table->pooled; i++)
        sum += lease_length(&table->pool[i]);
    return sum;
}

/* Does another lease or the pool hold part of this lease? */
static bool owned_twice(const struct lease_table *table, uint32_t node, size_t at)
{
    const struct lease *own = &table->holder[node].held[at];
    for (size_t i = 0; i < table->pooled; i++)
        if (overlap_or_touch(&table->pool[i], own))
            return true;
    for (uint32_t other = 0; other < table->nodes; other++)
        for (size_t i = 0; i < table->holder[other].count; i++)
            if ((other != node || i != at) && overlap_or_touch(&table->holder[other].held[i], own))
                return true;
    return false;
}

bool lease_adds_up(const struct lease_table *table)
{
    bool sound = true;
    for (uint32_t node = 0; node < table->nodes; node++) {
        const struct lease_holder *h = &table->holder[node];
        sound &= h->here || h->count == 0;
        for (size_t i = 0; i < h->count; i++)
            sound &= h->held[i].from < h->held[i].to && h->held[i].to <= table->frontier &&
                     !owned_twice(table, node, i);
    }
    for (size_t i = 0; i < table->pooled; i++)
        sound &= table->pool[i].from < table->pool[i].to && table->pool[i].to <= table->frontier &&
                 (i == 0 || table->pool[i - 1].to <= table->pool[i].from);
    return sound && sums_agree(table);
}

/* ---- checkpoints ---- */

void lease_write(const struct lease_table *table, struct buf *out)
{
    buf_printf(out, "%" PRIu64 " %" PRIu64 " %" PRIu64, table->frontier, table->lost,
               table->repeated);
    for (size_t i = 0; i < table->pooled; i++)
        buf_printf(out, " %" PRIu64 "-%" PRIu64 "%s", table->pool[i].from, table->pool[i].to,
                   table->pool[i].doubtful ? "?" : "");
    for (uint32_t node = 0; node < table->nodes; node++)
        for (size_t i = 0; i < table->holder[node].count; i++)
            buf_printf(out, " %" PRIu64 "-%" PRIu64 "?", table->holder[node].held[i].from,
                       table->holder[node].held[i].to);
    buf_put_u8(out, 0);
}

/* Read digits. */
static bool read_number(const char **at, uint64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return true;
}

/* If `c` is the next character, consume it. */
static bool read_char(const char **at, char c)
{
    bool is = **at == c;
    *at += is;
    return is;
}

/* Read one more range, which must not overlap the earlier ones. */
static bool read_range(struct lease_table *table, const char **at)
{
    struct lease lease = {.from = 0};
    if (!read_char(at, ' ') || !read_number(at, &lease.from) || !read_char(at, '-') ||
        !read_number(at, &lease.to))
        return false;
    lease.doubtful = read_char(at, '?');
    if (lease.from >= lease.to || lease.to > table->frontier)
        return false;
    for (size_t i = 0; i < table->pooled; i++)
        if (overlap_or_touch(&table->pool[i], &lease))
            return false;
    pool_add(table, lease);
    return true;
}

/* The step size of the resumed run may differ: cut the ranges to whole steps. */
static void cut_to_grain(struct lease_table *table)
{
    for (size_t i = table->pooled; i-- > 0;) {
        uint64_t odd = lease_length(&table->pool[i]) % table->grain;
        table->pool[i].to -= odd;
        table->lost += odd;
        if (table->pool[i].from == table->pool[i].to)
            pool_remove(table, i);
    }
}

bool lease_read(struct lease_table *table, const char *text, uint64_t grain)
{
    uint64_t frontier, lost, repeated;
    const char *at = text;
    if (!read_number(&at, &frontier) || !read_char(&at, ' ') || !read_number(&at, &lost) ||
        !read_char(&at, ' ') || !read_number(&at, &repeated) ||
        !lease_open(table, frontier, lost, grain))
        return false;
    table->repeated = repeated;
    while (*at)
        if (!read_range(table, &at))
            return false;
    if (table->lost + lease_pooled(table) > frontier)
        return false;
    cut_to_grain(table);
    table->used = frontier - table->lost - lease_pooled(table);
    return true;
}
