/* The communication of a net whose layers are split over F processes (SparkDML, §2.3).
 *
 * The paper counts every message of an epoch, and all units of data, as if one followed the other.
 * Its Eq. 4 and Eq. 9 divide the data by the messages and multiply them again, and its K counts M
 * training examples where N_1, N_2 and N_3 count one. Repaired (ours):
 *
 *     T = K·T_lat + M(N_1 + N_2 + N_3)·T_data .
 *
 * S(x) is the size of x in bytes, 4 for each number: b_i is the number of neurons of layer i, and
 * the error δ^i of a layer is as long as its output. */
#ifndef PL_PLAN_SPARKDML_H
#define PL_PLAN_SPARKDML_H

#include "coll/cost_fit.h"

struct sparkdml {
    const double *b; /* b_0 … b_{n−1}; borrowed */
    size_t n;        /* layers, the input among them, ≥ 2 */
    double F;        /* processes, ≥ 1 */
    double M;        /* training examples of an epoch */
};

struct sparkdml_volume {
    double K;             /* Eq. 5: messages of an epoch, M[(F−1) + Σ(F·log2 F + 2(F−1))] */
    double N_1, N_2, N_3; /* bytes of one example: Eq. 6 (start), 7 (forward), 8 (backward) */
};

/* The sums of Eq. 5, 7 and 8 are over the hidden layers 1 … n−2. log2 F is real, as printed. */
struct sparkdml_volume sparkdml_volume(const struct sparkdml *net);

/* Seconds of an epoch's communication over a link with T_lat = u, T_data = v (repaired Eq. 4). */
double sparkdml_time(const struct sparkdml *net, const struct cost_line *link);

/* How much faster F processes are than one that takes `seconds` for an example, and sends nothing:
 * each computes an F-th of it, and the communication follows. */
double sparkdml_speedup(const struct sparkdml *net, const struct cost_line *link, double seconds);

/* The number of processes, at most `most` ≥ 1, with the greatest speed-up; of equal ones the
 * smallest. */
size_t sparkdml_best(const struct sparkdml *net, const struct cost_line *link, double seconds,
                     size_t most);

#endif
