/* The consistency of a parameter server as a pure step machine: it decides which workers may
 * continue after a push. Its inputs are events with their times; its outputs are the workers that
 * may continue now. It knows no weights, messages or clock, so a test can build any state.
 *
 * A worker pushes a gradient, waits for OK, fetches the weights and continues. Its lead is how many
 * pushes it is ahead of the slowest, t_p - t_slowest; its staleness is its lead when OK is sent.
 *
 *   bsp    OK at a lead of 0: rounds
 *   asp    OK always
 *   ssp    OK at a lead of s or less
 *   dssp   OK at a lead of s_lower or less. Beyond it, the fastest may get credit: the number of
 *          further iterations, 0 to r_max, with the shortest predicted wait for the slowest (DSSP,
 *          Algorithms 1 and 2).
 *
 * Credit can be granted again as soon as it is spent, so the lead under dssp has no bound, whatever
 * the paper's Theorem 2 assumes, unless `hard_bound` is set: then staleness is at most s_U =
 * s_lower + r_max. The slowest worker never waits, so a waiting worker continues when the slowest
 * has pushed often enough, or is lost.
 *
 * An event costs a pass or two over the members, and r_max^2 for credit. Nothing is allocated. */
#ifndef PL_STRATEGY_CONSISTENCY_H
#define PL_STRATEGY_CONSISTENCY_H

#include "group/view.h"

#include <stdbool.h>
#include <stdint.h>

enum { CONSISTENCY_R_MAX = 255 };

enum consistency_kind { CONSISTENCY_BSP, CONSISTENCY_ASP, CONSISTENCY_SSP, CONSISTENCY_DSSP };

/* The paper has two versions. The OK that is sent with a fresh credit r*
 *   LETTER uses none of it, as in the listing: r* + 1 further iterations;
 *   TEXT uses one, as in the text around the listing: r*. */
enum consistency_credit { CONSISTENCY_LETTER, CONSISTENCY_TEXT };

struct consistency_config {
    enum consistency_kind kind;
    uint32_t staleness; /* ssp: s */
    /* dssp alone */
    uint32_t s_lower; /* s_L */
    uint32_t r_max;   /* s_U - s_L, at most CONSISTENCY_R_MAX */
    enum consistency_credit credit;
    bool hard_bound; /* credit is at most s_U - lead */
};

/* The state of a worker p, in the paper's symbols. */
struct consistency_worker {
    uint64_t t;         /* pushes; a joiner's begin at those of the slowest */
    uint32_t r;         /* credit left */
    uint32_t known;     /* how many of A hold a time */
    int64_t A[2];       /* its two latest pushes, ns: the latest first */
    uint64_t staleness; /* the largest at which OK was sent to it */
};

struct consistency {
    struct consistency_config config;
    struct members in, waiting;                         /* the latter among the former */
    struct consistency_worker worker[VIEW_MEMBERS_MAX]; /* by node number; also of workers that
                                                           left */
};

/* There is no member yet. */
void consistency_init(struct consistency *c, const struct consistency_config *config);

/* `members`, which are not in yet, may begin to compute: with as many pushes as the slowest member,
 * and without a predicted interval until they have pushed twice. If others leave at the same
 * moment, call consistency_leave first. */
void consistency_join(struct consistency *c, const struct members *members);

/* Is a push of this worker valid: is it in, and not waiting for OK? Call it before a gradient from
 * the wire is used. */
bool consistency_expects(const struct consistency *c, uint32_t node);

/* The gradients of `members`, all of them expected, have arrived together and are applied. `now` is
 * in ns and never decreases. ok, out: the workers that may continue, among `members` and those that
 * were waiting. */
void consistency_push(struct consistency *c, const struct members *members, int64_t now,
                      struct members *ok);

/* `members`, all of them in, have died or left: no worker waits for them any more. ok, out: the
 * workers that may continue now. */
void consistency_leave(struct consistency *c, const struct members *members, struct members *ok);

/* DSSP's synchronization controller (Algorithm 2): how many further iterations, 0 to r_max, a
 * worker with the two latest pushes A_p should run so that it waits least for the slowest, with
 * A_slow. The smallest where several are equal. Intervals in ns, below a year. */
uint32_t consistency_controller(const int64_t A_p[2], const int64_t A_slow[2], uint32_t r_max);

#endif
