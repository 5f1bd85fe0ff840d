/* A worker's position in its leases (lease.h): the offset of its next step, and the time to request
 * more. It requests one lease ahead, and training never waits for the grant: when all leases are
 * used up, it repeats the last one and counts the samples as repeated. Pure. */
#ifndef PL_DATA_LEASE_CURSOR_H
#define PL_DATA_LEASE_CURSOR_H

#include "data/lease.h"
#include "data/loader.h"

struct lease_cursor {
    uint64_t grain;                     /* each lease is a multiple of it */
    uint64_t step;                      /* samples that a step is to have; at first `grain` */
    struct lease lease[LEASE_HELD_MAX]; /* the first begins at the next step */
    size_t count;
    struct lease last;        /* the last lease from its beginning, to repeat when there is no
                                 other */
    uint64_t at;              /* offset of the next step within `last` */
    uint64_t taken, repeated; /* samples: of leases, and repeated */
    uint64_t granted;         /* samples of the newest grant */
    uint64_t highest;         /* end of the highest lease that it has had */
    uint32_t request;         /* number of the newest request; joining is request 1 */
    bool pending;             /* that request has no grant yet */
    uint64_t want;            /* samples that it requests */
};

/* Begin with the lease `first`. If that is empty, a grant is on its way, and until then the `size`
 * samples from first.from on are trained on and counted as repeated. */
void lease_cursor_begin(struct lease_cursor *cursor, uint64_t grain, struct lease first,
                        uint64_t size);

/* Samples of the next step. A lease is cut into steps as long as `step`, to within a half, that
 * differ by one at most; where it is whole steps of `grain`, as long as that. */
struct stretch lease_cursor_share(const struct lease_cursor *cursor);

/* The same of the steps after it, unless another lease arrives before: of one step, and of further
 * ones as far as its leases reach, `most` (> 0) in all. Returns their number. */
size_t lease_cursor_following(const struct lease_cursor *cursor, struct stretch *next, size_t most);

/* A step of those samples was taken. */
void lease_cursor_step(struct lease_cursor *cursor);

/* Unused samples of its leases. */
uint64_t lease_cursor_left(const struct lease_cursor *cursor);

/* Is it time for a request: is half of the last grant used, or one step left, and no request open?
 * true once; the request for `want` samples is then open. */
bool lease_cursor_should_request(struct lease_cursor *cursor, uint64_t want);

/* No grant will come for the open request: it may be made again. */
void lease_cursor_forget_request(struct lease_cursor *cursor);

/* Take the grant of request `request`. Leases beyond LEASE_HELD_MAX are ignored. false: that
 * request is not open, or the leases are impossible; then it may be made again. */
bool lease_cursor_take_grant(struct lease_cursor *cursor, uint32_t request,
                             const struct lease *given, size_t count);

#endif
