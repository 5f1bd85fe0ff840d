/* Runs schedules. Every step is cut into pieces, and a piece starts when the pieces that it depends
 * on have ended. So receiving, reducing and sending overlap for any algorithm. Sums are added into
 * the vector as bytes arrive, sends leave from it, and nothing is copied or allocated. */
#ifndef PL_COLL_COLL_RUN_H
#define PL_COLL_COLL_RUN_H

#include "coll/coll.h"
#include "coll/coll_schedule.h"
#include "tensor/codec.h"
#include "tensor/reduce.h"

/* How a plan's vectors travel. */
struct coll_config {
    size_t chunk;     /* floats of a piece; grows when a vector has too many of them */
    enum codec codec; /* of the wire; anything but f32 refuses butterfly and ring, where ranks would
                         end with different sums */
    struct reduction reduction;
    bool phantom; /* sim: only lengths travel; x is NULL */
    /* sim: seconds of a core per byte that each piece costs to serialise, at either end, and to
     * reduce (Elastic's z and g). */
    double serialise, reduce;
};

/* A rank's own summand where it is not in x yet: weight·at, or zeros if `at` is NULL. */
struct coll_input {
    const float *at;
    float weight;
};

struct coll_plan {
    struct schedule schedule;
    struct coll_config config;
    struct {
        float *x; /* of the run under way; NULL: the summand is in it */
        struct coll_input input;
    } own;
    struct flow *flow; /* one a step */
    size_t *needs;     /* numbers of steps */
    struct port *ports;
    uint64_t moved; /* bytes, by the last run */
    float *scratch;
    uint8_t *stage; /* encoded pieces, one a port */
    float *decoded; /* one piece */
};

/* Make a schedule ready to be run any number of times; it is the plan's from then on, even when
 * this fails. ERR_NOMEM */
int coll_plan_make(struct coll_plan *plan, struct schedule *schedule,
                   const struct coll_config *config);
void coll_plan_release(struct coll_plan *plan); /* zeroed: nothing to do */

/* Values that a lossy codec has lost and a rank has not sent yet, n floats each; NULL: they are not
 * kept. The two may be one: a range is of one kind at a time. */
struct coll_owed {
    float *sums;    /* of partial sums, a rank's own contribution among them */
    float *results; /* of results, which their first sender rounds for all */
};

/* Run the plan on x (schedule.n floats) as exchange c->n of its lane. Every rank runs its own
 * schedule of the same collective. Returns when x has the result and the world no longer uses x;
 * other ranks may still be running. ERR_VIEW, ERR_TIMEOUT, ERR_CANCELLED, ERR_PROTOCOL: x is
 * undefined, and not used any more. */
int coll_run(struct coll *c, struct coll_plan *plan, float *x, struct coll_owed owed);

/* A reduction in f32, whose x the run writes without a pass of its own over it: a step that is the
 * first to touch a range begins with the input. Ranges that no step touches stay as they are,
 * except those of a lone rank. */
int coll_reduce(struct coll *c, struct coll_plan *plan, float *x, struct coll_input input);

#endif
