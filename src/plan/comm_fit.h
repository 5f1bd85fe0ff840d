/* The time of an exchange among N workers, T_comm(N), from measurements (Elastic, §3.3).
 *
 * The model of scaling.h needs a line, α + βN. The thesis fitted linear, logarithmic, power and
 * polynomial laws to its all-reduce and found the line best. It is not best for every algorithm: a
 * butterfly takes log2 N rounds. So all three laws are fitted, and the best one is named.
 *
 * Each fit minimises the sum of squares of (law / median − 1) over the cluster sizes, as
 * coll/cost_fit.h does for links, so that a small cluster's exchange counts as much as a large
 * one's. No coefficient is below 0. */
#ifndef PL_PLAN_COMM_FIT_H
#define PL_PLAN_COMM_FIT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* One exchange that was timed. Repeats are welcome: the median of each N counts. */
struct comm_sample {
    double N; /* workers, > 1 */
    double seconds;
};

enum comm_law {
    COMM_LINEAR,      /* a + b·N: a is α, b is β */
    COMM_LOGARITHMIC, /* a + b·log2 N */
    COMM_POWER,       /* a·N^b, b at most 4 */
    COMM_LAWS
};

struct comm_curve {
    double a, b;
    double residual; /* root mean square of (law / median − 1) */
};

struct comm_fit {
    struct comm_curve curve[COMM_LAWS];
    enum comm_law best; /* the least residual; of equal ones, the first law */
};

/* Fit the laws to n exchanges (borrowed).
 * ERR_INPUT: fewer than three different N, with which every law agrees; or an N or a time that is
 * not finite or too small. ERR_NOMEM. `fit` is then untouched. */
int comm_fit_laws(const struct comm_sample *sample, size_t n, struct comm_fit *fit,
                  struct err *err);

/* Seconds of an exchange among N workers. */
double comm_curve_at(enum comm_law law, const struct comm_curve *curve, double N);

enum { COMM_WARNING_MAX = 256 };

/* If a line is not the best law, write a sentence that says so and return true; otherwise, leave
 * `text` empty. */
bool comm_fit_warning(const struct comm_fit *fit, char text[COMM_WARNING_MAX]);

#endif
