/* The arithmetic of `pace` that is not MPCA's (mpca_rules.h), apart from all communication.
 *
 * The global model follows MPCA's Eq. 9, 8, 4 and 5 with β = 1, so that x̃ is the average R itself:
 *
 *     R_n = Σ τ^i·p^i / Σ τ^i    v_n = δ·v_{n−1} + (1 − δ)·(R_n − R_{n−1})/P    b_n = R_n + γP·v_n
 *
 * where p^i is worker i's model when it contributed, and b_n what all receive. A worker moves by
 * κ·(b_n − p^i). v is the motion in a step, since periods differ: after a pause one is long, and
 * its motion must not be extrapolated in the short ones that follow. δ, γ, κ and P of an exchange
 * follow from
 *
 *     K  its contributors      P  their steps since their last contributions, in the mean
 *     μ  the solver's momentum
 *
 * and from nothing else, so that no task needs values of its own:
 *
 *     κ = 1/(1 + 3μ^P)            A worker gives up its distance from the others as it was some
 *                                 steps ago, but keeps its momentum, of which μ^P is left after a
 *                                 period. With κ = 1 and much left, the distance swings to the
 *                                 other side, and grows at rates at which `sync` is stable.
 *     δ = 1 − P(1 − μ)/3, or 0    v and the momentum are two integrators in series, which oscillate
 *                                 if v reacts as fast as the momentum, which lasts for 1/(1 − μ)
 *                                 steps: so v takes three times as many, or a period.
 *     κγ = 1 − 1/K                In steady drift v multiplies progress by 1/(1 − κγ) = K. The
 *                                 average has 1/K of a worker's noise. So K times the rate has the
 *                                 noise of one worker at the job's rate (linear scaling), and no
 *                                 worker takes larger steps for it.
 *
 * In a linear system, a quadratic with heavy-ball momentum, three is the least whole number in both
 * places with which `pace` is stable up to a third of the rate to which `sync` is
 * (pace_rules_test.c). */
#ifndef PL_STRATEGY_PACE_RULES_H
#define PL_STRATEGY_PACE_RULES_H

#include "strategy/mpca_rules.h"

struct pace_settings {
    double momentum; /* μ */
    double gain;     /* κγ, 0 to 1; below 0: 1 − 1/K */
    bool whole;      /* κ is 1: what a worker contributes is not its own any more */
};

/* Of an exchange; `gain` is κγ. */
struct pace_motion {
    double kappa, delta, gain, period;
};

/* After contributions with Σ τ = `tau`. */
struct pace_motion pace_motion(const struct pace_settings *set, size_t contributors, uint64_t tau);

/* Its δ and γ. There is no ramp: v begins at 0. */
struct mpca_config pace_config(const struct pace_motion *motion);

/* x ← x + (b − from), by which a worker keeps its progress since its model was `from`, and makes it
 * from b instead. All have one length. */
void pace_rebase(struct vec *x, const struct vec *b, const struct vec *from);

/* x ← x + κ·(b − from). With κ = 1 it is pace_rebase. */
void pace_approach(struct vec *x, const struct vec *b, const struct vec *from, double kappa);

#endif
