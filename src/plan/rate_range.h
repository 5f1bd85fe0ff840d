/* The learning-rate range test: train while the rate grows, and see where the loss falls (Smith,
 * Cyclical Learning Rates for Training Neural Networks, 2017, arXiv:1506.01186, §3.3; Elastic,
 * §2.2.3).
 *
 * Smith's base rate is where accuracy begins to rise, and his highest where it slows, becomes
 * ragged or falls; the thesis takes the rate of the least loss. Both read them off a figure. Here a
 * rule reads a range off the smoothed loss (ours). F is the fall of that loss from its first value
 * to its least. `low` is the first rate at which the loss has made a tenth of F, and `high` the
 * first at which it has made 95 % of F. The loss is smoothed by an exponential mean over a fiftieth
 * of the steps, whose first values are corrected as Adam's are (Kingma and Ba 2015, Algorithm
 * 1). */
#ifndef PL_PLAN_RATE_RANGE_H
#define PL_PLAN_RATE_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rates from `from` to `to`, one a step: in equal ratios, or, if linear, in equal differences. */
struct rate_sweep {
    double from, to; /* 0 < from < to */
    uint32_t steps;  /* > 1 */
    bool linear;
};

/* The rate of step 0 ≤ step < steps. */
double rate_sweep_at(const struct rate_sweep *sweep, uint32_t step);

/* How a test ends before its last step: the smoothed loss is above so many times its least value
 * (Elastic: "until it diverges"; the factor is ours). */
#define RATE_DIVERGED 4

struct rate_smoothing {
    double keep;      /* the weight of the mean before, 0 ≤ keep < 1 */
    double mean;      /* of the losses, before its correction */
    double corrector; /* keep^n after n losses */
    double least;     /* smoothed loss */
};

void rate_smoothing_begin(struct rate_smoothing *s, uint32_t steps);

/* The smoothed loss after one more. */
double rate_smoothing_add(struct rate_smoothing *s, double loss);

bool rate_smoothing_diverged(const struct rate_smoothing *s, double smoothed);

struct rate_range {
    bool found;       /* else the loss has not fallen by a twentieth of its first value */
    bool still_falls; /* the least loss is that of the last step */
    size_t low, high; /* steps of the range's ends */
    size_t least;     /* the step with the least smoothed loss */
};

/* The range of n smoothed losses, n > 0, by the rule above. */
struct rate_range rate_range_find(const double *smoothed, size_t n);

#endif
