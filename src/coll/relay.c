/* Relays: the vector reduced to rank 0, and sent from there to all, where rank 0 brings nothing to
 * the sum. It is cut into as many parts as there are other ranks, and each part goes along a chain
 * of its own through all of them: that of part j begins at the (j + 1)th and goes round. To rank 0
 * each then sends the vector once, from it all but a K-th, so there and back no rank carries more
 * than 2 - 1/K times the vector either way; the least that could be is 2K/(K + 1). A chain through
 * all in one order costs its middle ranks twice the vector.
 *
 * All chains are as long, and would end at rank 0 at once, in the last of K rounds. So parts go in
 * slices: the first slices are there when the last begin. */
#include "coll/coll_schedule.h"

enum {
    SLICES = 8,
    SLICE_MIN = 1024
}; /* number of slices at most, and floats of a slice at least */

struct relay {
    size_t others; /* K */
    size_t place;  /* this rank's among them */
    size_t slices;
};

static struct relay relay_begin(struct schedule *s, size_t ranks, size_t me, size_t n)
{
    struct relay r = {ranks - 1, me - 1, 0};
    size_t most = r.others > 0 ? n / r.others / SLICE_MIN : 0;
    schedule_begin(s, ranks, me, n);
    if (r.others > 0)
        r.slices = most < 1 ? 1 : most < SLICES ? most : SLICES;
    return r;
}

struct slice {
    size_t at, len;
};

static struct slice slice_of(const struct schedule *s, const struct relay *r, size_t part,
                             size_t slice)
{
    size_t from = schedule_cut(s->n, r->others, part);
    size_t len = schedule_cut(s->n, r->others, part + 1) - from;
    size_t at = schedule_cut(len, r->slices, slice);
    return (struct slice){from + at, schedule_cut(len, r->slices, slice + 1) - at};
}

static size_t rank_at(const struct relay *r, size_t place)
{
    return 1 + place % r->others;
}

static size_t rank_before(const struct relay *r)
{
    return rank_at(r, r->place + r->others - 1);
}

/* The part in whose chain this rank is `links` hops behind the first rank. */
static size_t part_at(const struct relay *r, size_t links)
{
    return (r->place + r->others - links) % r->others;
}

/* One slice of every part. */
static void reduce_slice(struct schedule *s, const struct relay *r, size_t slice)
{
    for (size_t links = 0; s->me > 0 && links < r->others; links++) {
        struct slice part = slice_of(s, r, part_at(r, links), slice);
        bool last = links + 1 == r->others;
        if (links > 0)
            schedule_add(s, rank_before(r), part.at, part.len);
        schedule_send(s, last ? 0 : rank_at(r, r->place + 1), part.at, part.len, false);
    }
    for (size_t j = 0; s->me == 0 && j < r->others; j++) {
        struct slice part = slice_of(s, r, j, slice);
        schedule_recv(s, rank_at(r, j + r->others - 1), part.at, part.len, false);
    }
}

static void broadcast_slice(struct schedule *s, const struct relay *r, size_t slice)
{
    for (size_t j = 0; s->me == 0 && j < r->others; j++) {
        struct slice part = slice_of(s, r, j, slice);
        schedule_send(s, rank_at(r, j), part.at, part.len, true);
    }
    for (size_t links = 0; s->me > 0 && links < r->others; links++) {
        struct slice part = slice_of(s, r, part_at(r, links), slice);
        schedule_recv(s, links > 0 ? rank_before(r) : 0, part.at, part.len, true);
        if (links + 1 < r->others)
            schedule_send(s, rank_at(r, r->place + 1), part.at, part.len, true);
    }
}

int schedule_relay_reduce(struct schedule *s, size_t ranks, size_t me, size_t n)
{
    struct relay r = relay_begin(s, ranks, me, n);
    for (size_t slice = 0; slice < r.slices; slice++)
        reduce_slice(s, &r, slice);
    return schedule_end(s);
}

int schedule_relay_broadcast(struct schedule *s, size_t ranks, size_t me, size_t n)
{
    struct relay r = relay_begin(s, ranks, me, n);
    for (size_t slice = 0; slice < r.slices; slice++)
        broadcast_slice(s, &r, slice);
    return schedule_end(s);
}
