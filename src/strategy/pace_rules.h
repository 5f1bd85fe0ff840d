/* The arithmetic of `pace` that is not MPCA's (mpca_rules.h), apart from all communication.
 *
 * The global model follows MPCA's Eq. 9, 8, 4 and 5 with β = 1, so that x̃ is the average R itself:
 *
 *     R_n = Σ τ^i·p^i / Σ τ^i    b_n = R_n + γS·v_n
 *     v_n = δ·v_{n−1} + (1 − δ)·((R_n − R_{n−1} − l·v_{n−1})/P + κγ·v_{n−1})
 *
 * where p^i is worker i's model when it contributed, and b_n what all receive. A worker moves by
 * κ·(b_n − p^i). v is the motion in a step: the workers' own, since exchange n − 1 made them leap
 * by l·v_{n−1}, with its l = κγS, and κγ·v of a leap. Where periods are equal, both are the change
 * of R in a step. But periods differ: after a pause one is long. Were v that change, it would
 * count the leap of a long period for the few steps of the next one, and that of a short period
 * for the many steps of a long one. δ, γ, κ, S and P of an exchange follow from
 *
 *     K  its contributors      P  their steps since their last contributions, in the mean
 *     μ  the solver's momentum
 *     T  the sum of the periods before: a worker's steps so far
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
 *                                 worker takes larger steps for it. While T is below 100, κγ is
 *                                 T/100 of that: the first motions are large, and soon turn, and
 *                                 leaps along them lead where training takes long to return from
 *                                 (as with the warm-up of large batches).
 *     S  the shorter of P and     v is K times a worker's motion. Over a period that is much longer
 *        the period before        than usual it would leap too far for the others to correct.
 *
 * In a linear system, a quadratic with heavy-ball momentum, three is the least whole number in both
 * places with which `pace` is stable up to a third of the rate to which `sync` is. With S, that
 * holds for unequal periods, too (pace_rules_test.c). */
#ifndef PL_STRATEGY_PACE_RULES_H
#define PL_STRATEGY_PACE_RULES_H

#include "strategy/mpca_rules.h"

struct pace_settings {
    double momentum; /* μ */
    double gain;     /* κγ from T = 100 on, 0 to 1; below 0: 1 − 1/K */
    bool whole;      /* κ is 1: what a worker contributes is not its own any more */
};

enum { PACE_RAMP = 100 };

/* Of an exchange; `gain` is κγ from T = PACE_RAMP on. */
struct pace_motion {
    double kappa, delta, gain, period;
};

/* After contributions with Σ τ = `tau`. */
struct pace_motion pace_motion(const struct pace_settings *set, size_t contributors, uint64_t tau);

/* l and P of an exchange, and T after it, for the next one. {0}: there is none before. */
struct pace_leap {
    float steps, period, trained;
};

struct pace_leap pace_leap(const struct pace_motion *motion, const struct pace_leap *before);

/* How v moves, and γS. */
struct mpca_config pace_config(const struct pace_motion *motion, const struct pace_leap *before);

/* x ← x + (b − from), by which a worker keeps its progress since its model was `from`, and makes it
 * from b instead. All have one length. */
void pace_rebase(struct vec *x, const struct vec *b, const struct vec *from);

/* x ← x + κ·(b − from). With κ = 1 it is pace_rebase. */
void pace_approach(struct vec *x, const struct vec *b, const struct vec *from, double kappa);

#endif
