#include "data/lease.h"

#include "base/fault.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t length(const struct lease *lease)
{
    return lease->to - lease->from;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t lease_size(double step_s, uint64_t grain, uint64_t records, size_t workers)
{
    double steps = step_s > 0 ? LEASE_SECONDS / step_s : LEASE_STEPS_MIN;
    uint64_t n = steps < LEASE_STEPS_MIN   ? LEASE_STEPS_MIN
                 : steps > LEASE_STEPS_MAX ? LEASE_STEPS_MAX
                                           : (uint64_t)(steps + 0.5);
    n = smaller(n, records / (grain * (workers > 0 ? workers : 1)));
    return (n > LEASE_STEPS_LEAST ? n : LEASE_STEPS_LEAST) * grain;
}

bool lease_open(struct lease_book *book, uint64_t frontier, uint64_t lost, uint64_t grain)
{
    PL_ASSERT(grain > 0);
    if (lost > frontier || frontier > LEASE_PLACE_MAX)
        return false;
    memset(book, 0, sizeof *book);
    book->grain = grain;
    book->frontier = frontier;
    book->used = frontier - lost;
    book->lost = lost;
    return true;
}

static struct lease_holder *holder_of(struct lease_book *book, uint32_t node)
{
    return node < LEASE_NODES_MAX && book->holder[node].here ? &book->holder[node] : NULL;
}

void lease_enter(struct lease_book *book, uint32_t node)
{
    if (node >= LEASE_NODES_MAX || book->holder[node].here)
        return;
    book->holder[node] = (struct lease_holder){.here = true};
    if (node >= book->nodes)
        book->nodes = node + 1;
}

/* ---- the pool ---- */

static bool joins(const struct lease *a, const struct lease *b)
{
    return a->to == b->from && a->doubtful == b->doubtful;
}

static void pool_remove(struct lease_book *book, size_t i)
{
    book->pooled--;
    memmove(&book->pool[i], &book->pool[i + 1], (book->pooled - i) * sizeof *book->pool);
}

/* What finds no room is lost. */
static void pool_add(struct lease_book *book, struct lease lease)
{
    size_t i = 0;
    if (lease.from >= lease.to)
        return;
    while (i < book->pooled && book->pool[i].from < lease.from)
        i++;
    if (i > 0 && joins(&book->pool[i - 1], &lease)) {
        book->pool[i - 1].to = lease.to;
        if (i < book->pooled && joins(&book->pool[i - 1], &book->pool[i])) {
            book->pool[i - 1].to = book->pool[i].to;
            pool_remove(book, i);
        }
    } else if (i < book->pooled && joins(&lease, &book->pool[i])) {
        book->pool[i].from = lease.from;
    } else if (book->pooled == LEASE_POOL_MAX) {
        book->lost += length(&lease);
    } else {
        memmove(&book->pool[i + 1], &book->pool[i], (book->pooled - i) * sizeof *book->pool);
        book->pool[i] = lease;
        book->pooled++;
    }
}

/* At most `want` from the front of it. */
static struct lease pool_cut(struct lease_book *book, uint64_t want)
{
    struct lease *first = &book->pool[0], cut = *first;
    cut.to = cut.from + smaller(want, length(first));
    first->from = cut.to;
    if (first->from == first->to)
        pool_remove(book, 0);
    return cut;
}

/* ---- handing out, and taking back ---- */

static struct lease fresh(struct lease_book *book, uint64_t size)
{
    struct lease lease = {.from = book->frontier, .to = book->frontier + size};
    book->frontier = lease.to;
    return lease;
}

size_t lease_give(struct lease_book *book, uint32_t node, uint64_t want,
                  struct lease given[LEASE_HELD_MAX])
{
    struct lease_holder *h = holder_of(book, node);
    size_t n = 0;
    uint64_t most = (uint64_t)LEASE_STEPS_MAX * book->grain;
    PL_ASSERT(h);
    want = smaller(want, most) / book->grain * book->grain;
    want = want > 0 ? want : book->grain;
    while (want > 0 && h->count < LEASE_HELD_MAX) {
        struct lease lease = book->pooled > 0 ? pool_cut(book, want) : fresh(book, want);
        want -= length(&lease);
        h->held[h->count++] = given[n++] = lease;
    }
    return n;
}

void lease_begin(struct lease_book *book, uint32_t node, uint64_t size)
{
    struct lease_holder *h = holder_of(book, node);
    PL_ASSERT(h && h->count == 0 && size > 0 && size % book->grain == 0);
    h->held[h->count++] = fresh(book, size);
}

void lease_take(struct lease_book *book, uint32_t node, uint64_t taken, uint64_t again)
{
    struct lease_holder *h = holder_of(book, node);
    if (h && again > h->again) {
        book->repeated += again - h->again;
        h->again = again;
    }
    while (h && h->count > 0 && h->taken < taken) {
        struct lease *now = &h->held[0];
        uint64_t n = smaller(taken - h->taken, length(now));
        now->from += n;
        h->taken += n;
        book->used += n;
        book->repeated += now->doubtful ? n : 0;
        if (now->from == now->to)
            memmove(now, now + 1, --h->count * sizeof *now);
    }
}

static void give_back(struct lease_book *book, uint32_t node, bool doubtful)
{
    struct lease_holder *h = holder_of(book, node);
    for (size_t i = 0; h && i < h->count; i++) {
        h->held[i].doubtful |= doubtful;
        pool_add(book, h->held[i]);
    }
    if (h)
        *h = (struct lease_holder){.here = false};
}

void lease_leave(struct lease_book *book, uint32_t node)
{
    give_back(book, node, false);
}

void lease_die(struct lease_book *book, uint32_t node)
{
    give_back(book, node, true);
}

/* ---- a driver that has come back ---- */

static bool meet(const struct lease *a, const struct lease *b)
{
    return a->from < b->to && b->from < a->to;
}

static bool is_free(const struct lease_book *book, const struct lease *lease)
{
    for (uint32_t node = 0; node < book->nodes; node++)
        for (size_t i = 0; i < book->holder[node].count; i++)
            if (meet(&book->holder[node].held[i], lease))
                return false;
    return true;
}

bool lease_return(struct lease_book *book, uint32_t node, const struct lease_holder *said,
                  uint64_t high)
{
    bool sound = said->count <= LEASE_HELD_MAX && high <= LEASE_PLACE_MAX;
    lease_enter(book, node);
    struct lease_holder *h = holder_of(book, node);
    PL_ASSERT(h && h->count == 0);
    h->taken = said->taken;
    h->again = said->again;
    for (size_t i = 0; sound && i < said->count; i++) {
        const struct lease *lease = &said->held[i];
        sound = lease->from < lease->to && lease->to <= high && length(lease) % book->grain == 0 &&
                is_free(book, lease);
        if (sound)
            h->held[h->count++] = *lease;
    }
    if (!sound)
        h->count = 0;
    if (sound && high > book->frontier)
        book->frontier = high;
    return sound;
}

void lease_settle(struct lease_book *book, uint64_t used, uint64_t repeated)
{
    uint64_t held = lease_held(book), known;
    used = smaller(used, LEASE_PLACE_MAX - held); /* which are below it, each once */
    known = used + held;
    book->pooled = 0; /* some of it has been done since, and nobody knows what */
    book->used = used;
    book->repeated = repeated;
    if (book->frontier < known)
        book->frontier = known;
    book->lost = book->frontier - known;
}

/* ---- sums ---- */

uint64_t lease_held(const struct lease_book *book)
{
    uint64_t sum = 0;
    for (uint32_t node = 0; node < book->nodes; node++)
        for (size_t i = 0; i < book->holder[node].count; i++)
            sum += length(&book->holder[node].held[i]);
    return sum;
}

uint64_t lease_pooled(const struct lease_book *book)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < book->pooled; i++)
        sum += length(&book->pool[i]);
    return sum;
}

/* Is it somebody else's, too? */
static bool owned_twice(const struct lease_book *book, uint32_t node, size_t at)
{
    const struct lease *own = &book->holder[node].held[at];
    for (size_t i = 0; i < book->pooled; i++)
        if (meet(&book->pool[i], own))
            return true;
    for (uint32_t other = 0; other < book->nodes; other++)
        for (size_t i = 0; i < book->holder[other].count; i++)
            if ((other != node || i != at) && meet(&book->holder[other].held[i], own))
                return true;
    return false;
}

bool lease_adds_up(const struct lease_book *book)
{
    bool sound = true;
    for (uint32_t node = 0; node < book->nodes; node++) {
        const struct lease_holder *h = &book->holder[node];
        sound &= h->here || h->count == 0;
        for (size_t i = 0; i < h->count; i++)
            sound &= h->held[i].from < h->held[i].to && h->held[i].to <= book->frontier &&
                     !owned_twice(book, node, i);
    }
    for (size_t i = 0; i < book->pooled; i++)
        sound &= book->pool[i].from < book->pool[i].to && book->pool[i].to <= book->frontier &&
                 (i == 0 || book->pool[i - 1].to <= book->pool[i].from);
    return sound &&
           book->frontier == book->used + book->lost + lease_held(book) + lease_pooled(book);
}

/* ---- checkpoints ---- */

void lease_write(const struct lease_book *book, struct buf *out)
{
    buf_printf(out, "%" PRIu64 " %" PRIu64 " %" PRIu64, book->frontier, book->lost, book->repeated);
    for (size_t i = 0; i < book->pooled; i++)
        buf_printf(out, " %" PRIu64 "-%" PRIu64 "%s", book->pool[i].from, book->pool[i].to,
                   book->pool[i].doubtful ? "?" : "");
    for (uint32_t node = 0; node < book->nodes; node++)
        for (size_t i = 0; i < book->holder[node].count; i++)
            buf_printf(out, " %" PRIu64 "-%" PRIu64 "?", book->holder[node].held[i].from,
                       book->holder[node].held[i].to);
    buf_put_u8(out, 0);
}

/* Digits. */
static bool read_number(const char **at, uint64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return true;
}

/* Is that the next character? It has then been read. */
static bool read_char(const char **at, char c)
{
    bool is = **at == c;
    *at += is;
    return is;
}

/* One more range, of which the places below `frontier` are nobody's else. */
static bool read_range(struct lease_book *book, const char **at)
{
    struct lease lease = {.from = 0};
    if (!read_char(at, ' ') || !read_number(at, &lease.from) || !read_char(at, '-') ||
        !read_number(at, &lease.to))
        return false;
    lease.doubtful = read_char(at, '?');
    if (lease.from >= lease.to || lease.to > book->frontier)
        return false;
    for (size_t i = 0; i < book->pooled; i++)
        if (meet(&book->pool[i], &lease))
            return false;
    pool_add(book, lease);
    return true;
}

/* Steps may be of another size than they were. */
static void cut_to_grain(struct lease_book *book)
{
    for (size_t i = book->pooled; i-- > 0;) {
        uint64_t odd = length(&book->pool[i]) % book->grain;
        book->pool[i].to -= odd;
        book->lost += odd;
        if (book->pool[i].from == book->pool[i].to)
            pool_remove(book, i);
    }
}

bool lease_read(struct lease_book *book, const char *text, uint64_t grain)
{
    uint64_t frontier, lost, repeated;
    const char *at = text;
    if (!read_number(&at, &frontier) || !read_char(&at, ' ') || !read_number(&at, &lost) ||
        !read_char(&at, ' ') || !read_number(&at, &repeated) ||
        !lease_open(book, frontier, lost, grain))
        return false;
    book->repeated = repeated;
    while (*at)
        if (!read_range(book, &at))
            return false;
    if (book->lost + lease_pooled(book) > frontier)
        return false;
    cut_to_grain(book);
    book->used = frontier - book->lost - lease_pooled(book);
    return true;
}
