/* Full-batch descent: a line search along one direction after another, as a state machine over
 * vectors. Its caller evaluates the loss and its gradient at the point that it names, however many
 * workers that takes; members that pass the same values get the same bits, so they need no other
 * message. It reads no clock and sends nothing.
 *
 * The `iterate` is the last point whose line search has ended: it is the model, while the points
 * under trial may be worse. */
#ifndef PL_OPTIM_DESCENT_H
#define PL_OPTIM_DESCENT_H

#include "optim/direction.h"
#include "optim/line_search.h"

struct descent {
    double tolerance;
    struct direction direction;
    struct line_search search;
    struct vec iterate, gradient, d; /* the point, its gradient, and the direction from it */
    double loss, slope;              /* at the iterate: f, and along d */
    bool searches;    /* a line search is under way; else the point to evaluate is the iterate */
    bool is_steepest; /* d is the negative gradient */
    uint64_t steps;   /* line searches that have ended well */
};

enum descent_verdict {
    DESCENT_EVALUATE,  /* x is the next point */
    DESCENT_CONVERGED, /* ‖∇f‖ ≤ tolerance · max(1, ‖x‖) at the iterate, which x is */
    DESCENT_STUCK,     /* from the iterate, which x is, no step along −∇f lowers the loss: the
                          floats of x or of the gradient are not fine enough */
    DESCENT_DIVERGED,  /* the loss or the gradient at the iterate is not finite */
};

/* Memory for a model of n floats: 3 vectors, and 2 · history for L-BFGS. The test of convergence is
 * that of Liu and Nocedal 1989, which depends on the point alone, so a resumed run judges as the
 * first did. ERR_NOMEM */
int descent_init(struct descent *descent, const struct direction_ops *ops, size_t history,
                 double tolerance, size_t n, struct arena *arena);

/* Begin at x, which is the first point to evaluate. */
void descent_begin(struct descent *descent, const struct vec *x);

/* Forget the direction and the evaluation under way: x ← the iterate, to be evaluated next. */
void descent_restart(struct descent *descent, struct vec *x);

/* f and ∇f at x, the point last named: x ← the next one. */
enum descent_verdict descent_next(struct descent *descent, double loss, const struct vec *gradient,
                                  struct vec *x);

/* The objective of a solver with L2 decay, Σ decay·decay_mult/2·‖x‖² over the segments: add its
 * gradient to dx, and return it. Frozen segments (lr_mult 0) get a gradient of 0. */
double descent_add_decay(float decay, const struct segments *table, const struct vec *x,
                         struct vec *dx);

#endif
