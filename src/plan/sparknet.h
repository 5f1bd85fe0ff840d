/* When does it pay to average models every τ steps? (SparkNet, §3.1)
 *
 * K workers take τ steps of batch b each, and then average their models. A step takes C(b) seconds,
 * and gathering and broadcasting the models S seconds. Serial training needs N_a(b) steps for the
 * accuracy a, and averaging M_a(b, K, τ) rounds. N_a and M_a are measured: the paper has no formula
 * for them. */
#ifndef PL_PLAN_SPARKNET_H
#define PL_PLAN_SPARKNET_H

#include <stddef.h>

struct sparknet {
    double C; /* C(b), s, > 0 */
    double S; /* s, ≥ 0 */
};

/* Rounds of τ steps that reached the accuracy. */
struct sparknet_run {
    double tau; /* τ, steps, > 0 */
    double M_a; /* M_a(b, K, τ), rounds, > 0 */
};

/* Eq. 1: seconds of serial training, N_a(b)·C(b). */
double sparknet_serial_time(const struct sparknet *s, double N_a);

/* Eq. 2: seconds of training with averaging, (τC(b) + S)·M_a(b, K, τ). */
double sparknet_time(const struct sparknet *s, const struct sparknet_run *run);

/* The speed-up of averaging, N_a(b)C(b)/[(τC(b) + S)M_a(b, K, τ)]. */
double sparknet_speedup(const struct sparknet *s, double N_a, const struct sparknet_run *run);

/* The same for S = 0, N_a(b)/(τM_a(b, K, τ)): a cell of the map of Fig. 3. The caption and the text
 * before it print its inverse. */
double sparknet_ideal_speedup(double N_a, const struct sparknet_run *run);

/* The speed-up of dividing each batch among K workers (§3.1.1, "naive"): C(b)/(C(b/K) + S). `part`
 * is C(b/K) as measured, at least C(b)/K; the paper's C(b)/(C(b)/K + S) has part = C(b)/K. */
double sparknet_naive_speedup(const struct sparknet *s, double part);

enum sparknet_choice { SPARKNET_ALONE, SPARKNET_NAIVE, SPARKNET_AVERAGE };

/* The fastest of the three, and its speed-up. */
struct sparknet_verdict {
    enum sparknet_choice choice; /* the first in the order of the enum, of equally fast ones */
    double speedup;
    size_t run; /* SPARKNET_AVERAGE: the best of the runs, which gives τ; otherwise 0 */
};

/* Compare n runs with different τ, the division of batches, and one worker alone. */
struct sparknet_verdict sparknet_compare(const struct sparknet *s, double N_a, double part,
                                         const struct sparknet_run *run, size_t n);

#endif
