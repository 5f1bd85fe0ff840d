/* One direction of a node's link, which its transfers use one after another. Where a node serves
 * many, a transfer that has the link alone ends early, and the next phase of its peer begins while
 * others still wait: one peer downloads while another uploads, so that both directions of the link
 * are used. If all transfers share the link, all end together, and each direction idles while the
 * other one is used.
 *
 * The next transfer begins at once if the link has room for it: if the peers that use it are
 * slower than the link. Else it begins when the one before has ended, or when it should have: after
 * the time of its bytes at the link's rate. So a slow or stopped peer holds up no other one for
 * long.
 *
 * Both rates are measured. The link's is that of a window of some transfers together; in one
 * window of eight the next transfer begins early: if the link then carries more, that is its rate
 * from then on. In the first window transfers take no turns. A peer's rate is that of its fastest
 * transfer since, until it is slower while it has the link alone.
 *
 * Pure arithmetic: the caller has the time, in nanoseconds. */
#ifndef PL_COLL_LINK_TURNS_H
#define PL_COLL_LINK_TURNS_H

#include <stdbool.h>
#include <stdint.h>

struct link_turns {
    double rate;     /* bytes/ns; 0: not known yet */
    double load;     /* of it, by the transfers under way */
    int64_t free_at; /* the next transfer may begin then, even if there is no room */
    uint32_t active; /* transfers under way; */
    uint32_t peak;   /* their largest number in the window */
    uint64_t begun;  /* transfers so far */
    /* The window: */
    int64_t began, last, busy; /* `busy`: the time with transfers under way, up to `last` */
    double bytes;              /* of transfers that have ended in it; */
    uint32_t ended;            /* their number */
    uint32_t windows;          /* before it */
};

/* The other end of transfers in one direction, of which one is under way at most. */
struct link_peer {
    double rate; /* bytes/ns; 0: not known yet */
    double load; /* of the link's, by its transfer; */
    int64_t began;
    uint64_t number; /* among the link's transfers; */
    bool first;      /* no other one was under way; */
    bool shared;     /* it began in the first window */
};

/* May the peer's transfer begin? If not: not before `free_at`, unless one ends. */
bool link_turns_free(const struct link_turns *turns, const struct link_peer *peer, int64_t now);

/* A transfer of so many bytes begins. */
void link_turns_begin(struct link_turns *turns, struct link_peer *peer, double bytes, int64_t now);

/* It has ended, and so many bytes of it have passed. */
void link_turns_end(struct link_turns *turns, struct link_peer *peer, double bytes, int64_t now);

#endif
