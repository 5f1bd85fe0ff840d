/* A global batch that grows during training, and how fast such a run can be (Elastic, §6.2).
 *
 * m of M epochs are trained; `progress` is m/M, from 0 to 1. Epochs are counted by samples, so the
 * means over m weight each sample equally. */
#ifndef PL_PLAN_BATCH_GROWTH_H
#define PL_PLAN_BATCH_GROWTH_H

#include "plan/scaling.h"

struct batch_growth {
    double first, last; /* B_0 and B_max, samples, > 0 */
    double P;           /* the power, > 0; larger ones grow later */
};

/* Eq. 6.7: B = B_0 + (B_max - B_0)(m/M)^P, samples. */
double batch_growth_at(const struct batch_growth *g, double progress);

/* Eq. 6.8: B_eff, the mean of B over the epochs so far; at progress 1, Eq. 6.9. */
double batch_growth_effective(const struct batch_growth *g, double progress);

/* B_h = M/∫dm/B(m) over a whole run (ours): the static batch with as many updates. It is below
 * B_eff, with which the thesis compares. */
double batch_growth_equal_updates(const struct batch_growth *g);

/* ∫du/B from 0 to `progress` (ours): of M epochs of D samples, M·D times that are the updates so
 * far. */
double batch_growth_updates(const struct batch_growth *g, double progress);

/* The growth from `first` with the power P whose B_eff is `effective`: Eq. 6.9 solved for B_max. */
struct batch_growth batch_growth_reaching(double first, double effective, double P);

/* Speed-ups of a run whose number of workers is the best for each batch on the way. */
struct batch_growth_speedup {
    double mean;     /* of S over the epochs, which the thesis prints (Tables 6.8 to 6.11) */
    double harmonic; /* of S over the epochs: the time of one worker over the time of the run */
    double ratio;    /* mean of r over the epochs, as the thesis prints it */
};
struct batch_growth_speedup batch_growth_speedup(const struct batch_growth *g,
                                                 const struct scaling *s);

#endif
