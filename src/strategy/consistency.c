/* DSSP's server (Algorithm 1, lines 1-19, and Algorithm 2) without its weights. bsp, asp and ssp
 * are its lines 1-9 and 17 with other bounds on the lead, without credit.
 *
 * The listings are corrected in four places. A is updated at every push, not only when the
 * controller is called: otherwise the slowest, for which it is never called, would have no
 * interval. The slowest is the worker with the fewest pushes, not one found in A; among equals, the
 * one with the oldest latest push. With fewer than two pushes there is no interval, and no credit.
 * And a worker that got OK by credit at line 14 does not wait at line 17 as well. */
#include "strategy/consistency.h"

#include "base/fault.h"

#include <string.h>

void consistency_init(struct consistency *c, const struct consistency_config *config)
{
    PL_ASSERT(config->r_max <= CONSISTENCY_R_MAX);
    memset(c, 0, sizeof *c);
    c->config = *config;
}

/* The lead up to which OK needs no credit. */
static uint64_t bound_of(const struct consistency_config *config)
{
    switch (config->kind) {
    case CONSISTENCY_BSP: return 0;
    case CONSISTENCY_ASP: return UINT64_MAX;
    case CONSISTENCY_SSP: return config->staleness;
    case CONSISTENCY_DSSP: return config->s_lower;
    }
    PL_ASSERT(!"a kind of consistency");
    return 0;
}

/* A worker that has not pushed yet counts as older than all that have. */
static int64_t latest_push(const struct consistency_worker *w)
{
    return w->known > 0 ? w->A[0] : INT64_MIN;
}

/* Fewest pushes; among equals, the oldest latest push. NULL: there is no member. */
static const struct consistency_worker *find_slowest(const struct consistency *c)
{
    const struct consistency_worker *slow = NULL;
    MEMBERS_EACH (p, &c->in) {
        const struct consistency_worker *w = &c->worker[p];
        if (!slow || w->t < slow->t || (w->t == slow->t && latest_push(w) < latest_push(slow)))
            slow = w;
    }
    return slow;
}

static bool is_fastest(const struct consistency *c, const struct consistency_worker *w)
{
    MEMBERS_EACH (p, &c->in)
        if (c->worker[p].t > w->t)
            return false;
    return true;
}

void consistency_join(struct consistency *c, const struct members *members)
{
    const struct consistency_worker *slow = find_slowest(c);
    uint64_t t_slowest = slow ? slow->t : 0;
    MEMBERS_EACH (p, members) {
        PL_ASSERT(!members_has(&c->in, p));
        c->worker[p] = (struct consistency_worker){.t = t_slowest};
        members_add(&c->in, p);
    }
}

bool consistency_expects(const struct consistency *c, uint32_t node)
{
    return members_has(&c->in, node) && !members_has(&c->waiting, node);
}

uint32_t consistency_controller(const int64_t A_p[2], const int64_t A_slow[2], uint32_t r_max)
{
    const int64_t I_p = A_p[0] - A_p[1];          /* line 4 */
    const int64_t I_slow = A_slow[0] - A_slow[1]; /* line 5 */
    int64_t least = INT64_MAX;
    uint32_t r_least = 0;
    for (int64_t r = 0; r <= r_max; r++)
        for (int64_t k = 0; k <= r_max; k++) {
            int64_t Sim_p = A_p[0] + r * I_p;                /* line 6 */
            int64_t Sim_slow = A_slow[0] + (k + 1) * I_slow; /* line 7 */
            int64_t wait = Sim_slow > Sim_p ? Sim_slow - Sim_p : Sim_p - Sim_slow;
            if (wait < least) { /* line 8 */
                least = wait;
                r_least = (uint32_t)r;
            }
        }
    return r_least;
}

/* Algorithm 1, line 12: credit for w, the fastest, whose lead is beyond s_L. */
static uint32_t grant_credit(const struct consistency *c, const struct consistency_worker *w,
                             const struct consistency_worker *slow)
{
    if (w->known < 2 || slow->known < 2)
        return 0;
    uint32_t r = consistency_controller(w->A, slow->A, c->config.r_max);
    if (!c->config.hard_bound)
        return r;
    uint64_t s_U = (uint64_t)c->config.s_lower + c->config.r_max, lead = w->t - slow->t;
    uint64_t room = lead < s_U ? s_U - lead : 0;
    return r < room ? r : (uint32_t)room;
}

/* Algorithm 1, lines 3-16, when all pushes that arrived together are counted: may w, which has just
 * pushed, continue? */
static bool may_continue(const struct consistency *c, struct consistency_worker *w,
                         const struct consistency_worker *slow)
{
    if (w->r > 0) { /* lines 3-5, even where line 8 would hold */
        w->r--;
        return true;
    }
    if (w->t - slow->t <= bound_of(&c->config)) /* lines 8, 9 */
        return true;
    if (c->config.kind != CONSISTENCY_DSSP || !is_fastest(c, w)) /* line 11 */
        return false;
    w->r = grant_credit(c, w, slow);
    if (w->r == 0)
        return false;
    if (c->config.credit == CONSISTENCY_TEXT)
        w->r--;
    return true; /* lines 13, 14 */
}

static void send_ok(struct consistency *c, uint32_t p, const struct consistency_worker *slow,
                    struct members *ok)
{
    struct consistency_worker *w = &c->worker[p];
    uint64_t lead = w->t - slow->t;
    if (lead > w->staleness)
        w->staleness = lead;
    members_add(ok, p);
}

/* Algorithm 1, line 17: the slowest have pushed, or are lost. */
static void release_waiting(struct consistency *c, struct members *ok)
{
    const struct consistency_worker *slow = find_slowest(c);
    const struct members waiting = c->waiting;
    MEMBERS_EACH (p, &waiting) {
        if (c->worker[p].t - slow->t > bound_of(&c->config))
            continue;
        members_remove(&c->waiting, p);
        send_ok(c, p, slow, ok);
    }
}

void consistency_push(struct consistency *c, const struct members *members, int64_t now,
                      struct members *ok)
{
    *ok = (struct members){{0}};
    MEMBERS_EACH (p, members) {
        struct consistency_worker *w = &c->worker[p];
        PL_ASSERT(consistency_expects(c, p) && now >= latest_push(w));
        w->t++;            /* Algorithm 1, line 1 */
        w->A[1] = w->A[0]; /* Algorithm 2, lines 1, 2 */
        w->A[0] = now;
        w->known += w->known < 2;
    }
    const struct consistency_worker *slow = find_slowest(c);
    MEMBERS_EACH (p, members) {
        if (may_continue(c, &c->worker[p], slow))
            send_ok(c, p, slow, ok);
        else
            members_add(&c->waiting, p);
    }
    release_waiting(c, ok);
}

void consistency_leave(struct consistency *c, const struct members *members, struct members *ok)
{
    *ok = (struct members){{0}};
    MEMBERS_EACH (p, members) {
        PL_ASSERT(members_has(&c->in, p));
        members_remove(&c->in, p);
        members_remove(&c->waiting, p);
    }
    release_waiting(c, ok);
}
