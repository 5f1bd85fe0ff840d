/* Contributions to an average that differ from those of the other members: `reject: outliers`.
 *
 * Each contribution is described by a claim: its norm, its direction, and whether it was there
 * before. A judge compares the claims of one average, and refuses those that differ:
 *
 *   norm       it is above OUTLIER_NORM times the median of the members' usual norms. A member's
 *              usual norm is the largest of its last OUTLIER_KEPT contributions, since the norms of
 *              gradients of small batches spread
 *   direction  the members' contributions mostly point along the last average (the median of their
 *              cosines is at least OUTLIER_ALONG), and this member's point against it by more than
 *              half of that median. Cosines of single batches are noisy, so this one is the mean of
 *              a member's last ones, about OUTLIER_SIDES of them; none before there are as many
 *              (compare FLTrust, Cao et al. 2021, Eq. 2, whose reference is a trusted gradient)
 *   repeated   its fingerprint (the squared norm of the vector as it is sent) equals that of one of
 *              the member's last OUTLIER_KEPT contributions, and those of most others are new
 *
 * Medians hold while most members are sound. With fewer than three contributions nothing is
 * refused. The judge is a pure function of the claims.
 *
 * A claim proves as much as the node that computes it. A server that receives single contributions
 * computes it (strategy/ps_traffic.c). In an all-reduce no node but its own sees a contribution;
 * each member computes its own claim. So an all-reduce finds a member gone bad, but none that lies.
 */
#ifndef PL_COLL_OUTLIER_H
#define PL_COLL_OUTLIER_H

#include "tensor/vec.h"

#include <stdint.h>

enum { OUTLIER_KEPT = 8, OUTLIER_LEAST = 3, OUTLIER_SIDES = 20 };

#define OUTLIER_NORM    8.0
#define OUTLIER_ALONG   0.3
#define OUTLIER_NO_SIDE 2.0 /* the cosine where none is known yet */

/* All fields are eight bytes wide: it goes over the wire as it stands. */
struct outlier_claim {
    double weight; /* 0: there is no contribution */
    uint64_t samples;
    double loss; /* Σ over them */
    double norm, usual;
    double cosine;
    uint64_t repeats; /* 0 or 1 */
};

enum outlier_cause {
    OUTLIER_SOUND,
    OUTLIER_NORM_TOO_LARGE,
    OUTLIER_AGAINST,
    OUTLIER_REPEATED,
};

/* The judge's finding, for logs: "its norm is 3.1e+06, the median of the usual ones 2.2". */
enum { OUTLIER_TEXT_MAX = 120 };

/* The last contributions of one member. Zeroed: none. */
struct outlier_history {
    double norm[OUTLIER_KEPT], print[OUTLIER_KEPT];
    uint64_t count;
    double cosine; /* running mean of `sides` cosines */
    uint64_t sides;
};

/* Describe the member's next contribution u, where v is the last average, and `print` its
 * fingerprint: sets norm, usual, cosine and repeats of the claim. */
void outlier_measure(struct outlier_history *history, const struct vec_angle *angle, double print,
                     struct outlier_claim *claim);

/* Judge n claims, each by those of all. Returns how many are refused, and their causes. A claim of
 * weight 0, or of one that is not finite, is none. */
size_t outlier_judge(const struct outlier_claim *claim, size_t n, enum outlier_cause *cause);

/* Why claim i was refused. */
void outlier_explain(const struct outlier_claim *claim, size_t n, size_t i,
                     enum outlier_cause cause, char out[OUTLIER_TEXT_MAX]);

#endif
