/* The arithmetic of `pace` that is not MPCA's (mpca_rules.h), apart from all communication.
 *
 * The global model follows MPCA's Eq. 9, 8, 4 and 5 with β = 1, so that x̃ is the average R itself:
 *
 *     R_n = Σ τ^i·p^i / Σ τ^i     v_n = δ·v_{n−1} + (1 − δ)·(R_n − R_{n−1})     b_n = R_n + γ_n·v_n
 *
 * where p^i is worker i's model when it contributed, and b_n what all receive. */
#ifndef PL_STRATEGY_PACE_RULES_H
#define PL_STRATEGY_PACE_RULES_H

#include "strategy/mpca_rules.h"

/* δ 0.8, and 20 exchanges until γ_n is `gamma`. */
struct mpca_config pace_config(float gamma);

/* x ← x + (b − from), by which a worker keeps its progress since its model was `from`, and makes it
 * from b instead. From b_{n−1}, or from its own contribution if exchange n counted it. All have one
 * length. */
void pace_rebase(struct vec *x, const struct vec *b, const struct vec *from);

#endif
