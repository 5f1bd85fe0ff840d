/* Search directions of full-batch optimizers: from the gradients of successive points to a
 * direction. All are sums of vectors with factors made of dot products. Members with the same
 * gradients therefore get the same bits, without a message. */
#ifndef PL_OPTIM_DIRECTION_H
#define PL_OPTIM_DIRECTION_H

#include "tensor/vec.h"

/* A step from one point to the next. */
struct descent_step {
    const struct vec *before, *after;                   /* the points */
    const struct vec *gradient_before, *gradient_after; /* and their gradients */
};

struct direction;

struct direction_ops {
    const char *name; /* in jobs and messages */
    double curvature; /* c2 of the line search (line_search.h) */
    bool is_scaled;   /* its first step is 1; else it follows from the step before */
    size_t (*vectors)(size_t history); /* of memory, as long as x */
    /* d ← the direction from `after`, with that memory. */
    void (*next)(struct direction *direction, const struct descent_step *step, struct vec *d);
};

enum { DIRECTION_HISTORY_MAX = 100 };

struct direction {
    const struct direction_ops *ops;
    size_t history;
    struct vec *memory;                      /* ops->vectors(history) of them */
    size_t kept;                             /* steps of which the memory has something, */
    size_t newest;                           /* and the place of the last one */
    double curvature[DIRECTION_HISTORY_MAX]; /* y·s of each */
};

/* Polak and Ribière's conjugate gradient with β of 0 at least, which restarts it (Nocedal and
 * Wright, Eq. 5.44 and 5.45):
 *
 *     β = max(0, g'·(g' − g) / g·g),   d ← −g' + β·d
 *
 * Numerical Optimization, Algorithm 7.4 and Eq. 7.20, is the two-loop recursion of L-BFGS, over the
 * last `history` pairs s = x' − x and y = g' − g. A pair without positive curvature y·s is left
 * out. */
extern const struct direction_ops direction_cg, direction_lbfgs;

/* Memory for n floats. ERR_NOMEM */
int direction_init(struct direction *direction, const struct direction_ops *ops, size_t history,
                   size_t n, struct arena *arena);

/* The next direction does not depend on earlier steps. */
void direction_forget(struct direction *direction);

#endif
