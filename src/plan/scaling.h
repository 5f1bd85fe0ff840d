/* How data-parallel SGD scales with the number of workers (Elastic, chapter 3).
 *
 * N workers share a global batch of B samples. A worker computes γ samples a second, and an
 * exchange among N workers takes α + βN seconds. A step computes B/(γN) seconds, and then exchanges
 * (synchronous), or exchanges meanwhile (asynchronous). N and B are real here: the paper's maxima
 * lie between whole numbers.
 *
 * Strong scaling changes N at a fixed B; weak scaling changes N at a fixed b = B/N, so a caller
 * passes B = bN. As in the paper, one worker pays for an exchange, too: with N = 1 and α + β > 0
 * the speed-up is below 1. scaling_best and scaling_best_whole compare with a worker that trains
 * alone and exchanges nothing. */
#ifndef PL_PLAN_SCALING_H
#define PL_PLAN_SCALING_H

#include <stdbool.h>
#include <stddef.h>

struct scaling {
    enum { SCALING_SYNC, SCALING_ASYNC } kind;
    double gamma;       /* γ, samples/s of a worker, > 0 */
    double alpha, beta; /* α and β, s, ≥ 0 */
};

/* ---- times ---- */

/* Seconds of a step: B/(γN) + α + βN, or the larger of the two parts. */
double scaling_step(const struct scaling *s, double B, double N);

/* Samples per second of all workers together. */
double scaling_throughput(const struct scaling *s, double B, double N);

/* Worker-seconds that `samples` samples take: to compute them (Eq. 3.3, samples/γ), and for their
 * exchanges (Eq. 3.4, samples/B·N(α + βN)). */
double scaling_compute_total(const struct scaling *s, double samples);
double scaling_comm_total(const struct scaling *s, double samples, double B, double N);

/* Seconds for `samples` samples.
 *   synchronous    Eq. 3.1: (T_compute,total + T_comm,total)/N, which is Eq. 3.5
 *   asynchronous   Eq. 3.9: max(T_compute,total, T_comm,total)/N, which is Eq. 3.11 */
double scaling_time(const struct scaling *s, double samples, double B, double N);

/* Money for `samples` samples at `price` for a second of one worker: Eq. 3.2, 3.6 (synchronous),
 * Eq. 3.10, 3.12 (asynchronous). */
double scaling_cost(const struct scaling *s, double samples, double B, double N, double price);

/* ---- ratios ---- */

/* How much faster N workers are than one that exchanges nothing.
 *   synchronous    Eq. 3.7: BN/(B + αγN + βγN²)
 *   asynchronous   Eq. 3.13: min(N, B/(αγ + βγN)) */
double scaling_speedup(const struct scaling *s, double B, double N);

/* The share of their time that workers compute, the speed-up over N. Eq. 3.8; Eq. 3.14, which the
 * paper's text limits to 1. */
double scaling_efficiency(const struct scaling *s, double B, double N);

/* Eq. 6.10: r = T_compute/T_comm = B/(αγN + βγN²), of either kind. INFINITY without exchanges. */
double scaling_ratio(const struct scaling *s, double B, double N);

/* ---- the inverse ---- */

/* The number of workers at which the ratio is r > 0: the positive root of βN² + αN = B/(γr).
 * Eq. 6.11 has this root and then, for any α, √(B/(rβγ)), which is right for α = 0 only.
 * INFINITY without exchanges. */
double scaling_workers_for_ratio(const struct scaling *s, double B, double r);

/* That last form, √(B/(rβγ)). INFINITY if β is 0. */
double scaling_workers_as_printed(const struct scaling *s, double B, double r);

/* Isoefficiency: the smallest B at which N workers have the efficiency E.
 *   synchronous    Eq. 3.19: E/(1 - E)·γ(α + βN)N, 0 ≤ E < 1
 *   asynchronous   Eq. 3.20: Eγ(α + βN)N, 0 ≤ E ≤ 1 */
double scaling_batch_for_efficiency(const struct scaling *s, double E, double N);

/* Weak scaling: the speed-up for ever more workers with b samples each, b/(βγ), of either kind.
 * The paper (§3.4) says that the asynchronous speed-up declines after a peak. Eq. 3.13 with B = bN
 * does not: it is min(N, bN/(αγ + βγN)), which never falls. INFINITY if β is 0. */
double scaling_weak_limit(const struct scaling *s, double b);

/* ---- the best number of workers ---- */

struct scaling_best {
    double N; /* number of workers */
    double S; /* speed-up */
    double r; /* T_compute/T_comm */
};

/* The maximum of the speed-up over all N > 0.
 *   synchronous    Eq. 3.15: N = √(B/(βγ)); Eq. 3.17: S = B/(αγ + 2√(Bβγ))
 *   asynchronous   Eq. 3.16: the N with r = 1; Eq. 3.18: S = N
 * Without exchanges all three are INFINITY; so is N of the synchronous kind if β is 0. */
struct scaling_best scaling_maximum(const struct scaling *s, double B);

/* The same as the thesis tabulates it (Tables 6.8 to 6.11 and 7.2): if no number of workers is
 * faster than one alone, N = S = 1, and r = 1, which stands for "100 %". */
struct scaling_best scaling_best(const struct scaling *s, double B);

/* The fastest whole number of workers, at most `most` ≥ 1. N = 1 means alone, without exchanges:
 * S = 1, r = INFINITY. Of equally fast numbers, the smallest. */
struct scaling_best scaling_best_whole(const struct scaling *s, double B, size_t most);

#endif
