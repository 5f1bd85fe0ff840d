#include "coll/link_turns.h"

#include "base/fault.h"
#include "base/minmax.h"

enum {
    WINDOW = 8,  /* transfers, or twice as many as have been under way at once */
    EXPLORE = 8, /* one window of so many begins its transfers early */
};

#define ROOM    1.25 /* of the link's rate, which peers may be thought to use */
#define EARLY   0.5  /* of a transfer's time, until the next begins, in a window that explores */
#define FULL    0.9  /* share of a window in which a full link is busy */
#define FORGET  0.1  /* share of a lower rate in the new one */
#define LONGEST 1e15 /* ns */

/* A peer whose rate is not known may be as fast as the link. */
static double load_of(const struct link_turns *t, const struct link_peer *peer)
{
    return peer->rate > 0 ? min_double(peer->rate, t->rate) : t->rate;
}

bool link_turns_free(const struct link_turns *t, const struct link_peer *peer, int64_t now)
{
    return t->active == 0 || now >= t->free_at || t->load + load_of(t, peer) <= ROOM * t->rate;
}

static void advance_time(struct link_turns *t, int64_t now)
{
    if (t->active > 0)
        t->busy += now - t->last;
    t->last = now;
}

static double share_of_time(const struct link_turns *t)
{
    return t->windows % EXPLORE == EXPLORE - 1 ? EARLY : 1;
}

void link_turns_begin(struct link_turns *t, struct link_peer *peer, double bytes, int64_t now)
{
    double alone = t->rate > 0 ? bytes / t->rate : 0;
    advance_time(t, now);
    t->active++;
    t->peak = t->active > t->peak ? t->active : t->peak;
    t->free_at = now + (int64_t)min_double(share_of_time(t) * alone, LONGEST);
    *peer = (struct link_peer){.rate = peer->rate,
                               .load = load_of(t, peer),
                               .began = now,
                               .number = ++t->begun,
                               .first = t->active == 1,
                               .shared = t->windows == 0};
    t->load += peer->load;
}

/* A link that was not always busy may carry more than it did. */
static void end_window(struct link_turns *t)
{
    double rate = t->busy > 0 ? t->bytes / (double)t->busy : 0;
    bool full = (double)t->busy >= FULL * (double)(t->last - t->began);
    if (rate > t->rate)
        t->rate = rate;
    else if (full)
        t->rate += FORGET * (rate - t->rate);
    t->began = t->last;
    t->busy = 0;
    t->bytes = 0;
    t->ended = 0;
    t->peak = t->active;
    t->windows++;
}

/* Those that began in the first window shared the link. */
static void measure_peer(const struct link_turns *t, struct link_peer *peer, double rate)
{
    bool alone = peer->first && peer->number == t->begun;
    if (peer->shared)
        return;
    if (rate > peer->rate)
        peer->rate = rate;
    else if (alone)
        peer->rate += FORGET * (rate - peer->rate);
}

void link_turns_end(struct link_turns *t, struct link_peer *peer, double bytes, int64_t now)
{
    PL_ASSERT(t->active > 0);
    advance_time(t, now);
    t->active--;
    t->load = t->active > 0 ? t->load - peer->load : 0;
    t->bytes += bytes;
    t->ended++;
    if (bytes > 0 && now > peer->began)
        measure_peer(t, peer, bytes / (double)(now - peer->began));
    if (t->ended >= WINDOW && t->ended >= 2 * t->peak)
        end_window(t);
}
