/* The measured capacity of the links between ranks: messages of two sizes travel to and fro between
 * all pairs, many pairs at a time, none of which share a rank. Every rank ends with the same
 * numbers. */
#ifndef PL_COLL_PROBE_H
#define PL_COLL_PROBE_H

#include "coll/coll.h"

/* Bytes of a long message, and how many at most follow each other. */
enum { PROBE_BYTES = 1024 * 1024, PROBE_MESSAGES = 3 };

struct probe {
    size_t ranks;
    double latency;                    /* s, one way: the median of all pairs */
    double rate[VIEW_MEMBERS_MAX + 1]; /* bytes/s of each rank's link: of its best pair */
    bool alone; /* no rank had another collective under way: else these are not the links' */
};

/* Measure; a collective, at most one for each number of an exchange. A round of pairs moves 3 to
 * 4 MiB each way, so that P ranks on gigabit links take some 0.07 P s up to sixteen of them, and
 * three quarters of that for more. With a limit above 0 a message takes about that or less, on slow
 * links with fewer bytes, of which there are 64 KiB at least; a pair sends five or six of them each
 * way. The bytes that a token bucket lets pass at once do not count, up to a message.
 * ERR_VIEW, ERR_TIMEOUT, ERR_CANCELLED, ERR_NOMEM */
int probe_links(struct coll *c, double limit_s, struct probe *out);

/* Pairing P ranks so that all meet: the partner of `rank` in a round, or `rank` itself when it sits
 * out. There are probe_rounds(P) rounds. */
size_t probe_rounds(size_t ranks);
size_t probe_partner(size_t ranks, size_t rank, size_t round);

#endif
