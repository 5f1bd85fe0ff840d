/* The arithmetic of `mpca`, multi-phase coordinated asynchronous SGD (MPCA §4), apart from all
 * communication. Equations are numbered as in the paper, and so are its symbols:
 *
 *     x̃   the global model      ṽ   its direction       x̃*  x̃ carried on along ṽ
 *     x^i  worker i's model      τ^i  its steps since the shard was last reduced
 *
 * A cycle of a shard is its reduction, the preparation of the next broadcast, and that broadcast.
 * c counts the completed cycles of a shard: it is the number of the last exchange that its lane
 * completed, those without a contribution included, so that all members count alike. Schedules are
 * pure functions of c; they are computed in double and rounded to float before they touch a model.
 *
 * Ranges are those of x. Nothing here blocks, allocates or fails. */
#ifndef PL_STRATEGY_MPCA_RULES_H
#define PL_STRATEGY_MPCA_RULES_H

#include "tensor/vec.h"

/* Parameters by the paper's names. */
struct mpca_config {
    float delta;         /* δ of Eq. 4: 0.8 (§4.3) */
    float fresh;         /* ours: the part of a change that ṽ takes; 0: 1 − δ, as in Eq. 4 */
    float beta;          /* β of Eq. 8 falls from 1 to this: 0.9 (§4.5) */
    float gamma;         /* γ of Eq. 5 rises from 0 to this: 0.7 (§7.1); 0: no extrapolation */
    uint32_t ramp;       /* cycles until β has its final value: 20 (§7.1); γ, too (ours) */
    float alpha;         /* α of Eq. 6, 7 in the end: 0.05 (§7.1), for VGG-A 0.005 (§7.2.2) */
    float alpha_high;    /* α when the workers are called together: 0.5 (§6.3) */
    uint32_t alpha_hold; /* cycles without a penalty before that: 2 (ours; §6.3: "a couple") */
    float alpha_decay;   /* the factor of α − its target in each cycle: 0.8 (ours) */
    float stale_limit;   /* median cycles without a new x̃*: 4 (ours); 0: no limit */
};

extern const struct mpca_config mpca_config_default; /* the numbers above */

/* β_c = beta^(min(c, ramp)/ramp): the same factor each cycle, from 1 (§7.1). */
float mpca_beta(const struct mpca_config *config, uint64_t c);

/* γ_c = gamma·min(c, ramp)/ramp (§4.3 requires a low value that rises; the linear ramp is ours). */
float mpca_gamma(const struct mpca_config *config, uint64_t c);

/* The part of a change of x̃ that ṽ takes. */
float mpca_fresh(const struct mpca_config *config);

/* α_c = 0 while c < alpha_hold, then alpha + (alpha_high − alpha)·alpha_decay^(c − alpha_hold):
 * workers explore alone, are pulled together, and are released again (§6.3; the decay's form is
 * ours). */
float mpca_alpha(const struct mpca_config *config, uint64_t c);

/* ---- the worker ---- */

/* Numerator and denominator of Eq. 9 for a range: a worker's own, or several added up. Those of the
 * state s of layers such as BatchNorm are contributed alike. */
struct mpca_sum {
    float *x;     /* Σ τ^i·x^i: host memory, as many floats as the range */
    uint64_t tau; /* Σ τ^i */
};

/* Eq. 7, before a gradient is computed: x ← x − α·(x − x̃*). With α = 0 nothing is read. */
void mpca_displace(struct vec *x, const struct vec *star, float alpha, struct range r);

/* Eq. 6, after it was computed: dx ← dx + α·(x − x̃*), the gradient of α/2·‖x − x̃*‖². With α = 0
 * nothing is read. The difference takes up the range of `scratch`. */
void mpca_tilt(struct vec *dx, const struct vec *x, const struct vec *star, float alpha,
               struct range r, struct vec *scratch);

/* ---- the driver ---- */

/* The global model after t cycles, and in `next` its value after the exchange under way: vectors of
 * the caller. */
struct mpca_joint {
    struct mpca_model {
        struct vec x, v, star; /* x̃, ṽ, and x̃* as broadcast */
    } now, next;
};

/* Eq. 9: y ← Σ τ^i·x^i / Σ τ^i over the range; y stays as it is when Σ τ^i is 0. This is all that
 * befalls the state s of layers such as BatchNorm: it is never penalised, extrapolated or given
 * momentum. */
void mpca_mean(struct vec *y, struct range r, const struct mpca_sum *sum);

/* next ← the model after `now` and `sum`, the reduction over all workers in cycle c (after c
 * complete cycles), over the range; next.star is broadcast, and may be where sum->x is. If Σ τ^i is
 * 0, next is now. `now` does not change: another prepare of the range replaces this one, so an
 * exchange can be repeated with other contributions, or abandoned. Reads and writes three vectors
 * each, if next.star is the sum. */
void mpca_prepare(struct mpca_joint *joint, const struct mpca_config *config, uint64_t c,
                  struct range r, const struct mpca_sum *sum);

/* ---- who only hears x̃* ---- */

/* x̃*, and the γ with which it was made; the initial model has γ 0. */
struct mpca_star {
    const struct vec *star;
    float gamma;
};

/* v ← ṽ after the cycle that made x̃* `now`, from ṽ before it, which may be v, and the x̃* before
 * it: Eq. 4 and 5, solved for ṽ, which is not broadcast. Call it only for cycles with a
 * contribution. Reads three vectors and writes one. */
void mpca_follow(struct vec *v, const struct mpca_config *config, const struct vec *v_before,
                 const struct mpca_star *before, const struct mpca_star *now, struct range r);

/* ---- limits (ours; §1 asks for some) ---- */

enum { MPCA_CYCLES_KEPT = 15 };

/* How long the latest cycles of a shard took, in one unit: ns, or local steps. Starts as {0}. */
struct mpca_times {
    int64_t took[MPCA_CYCLES_KEPT];
    uint64_t cycles; /* ever noted */
};

void mpca_times_record(struct mpca_times *pace, int64_t took);

/* The median of those kept, the upper one of two; 0 before the first. */
int64_t mpca_times_median(const struct mpca_times *pace);

/* Is a shard's x̃* so old that the worker must not be pulled towards it any more (that is, α = 0)?
 * `since` it arrived, in the unit of `median`. Nothing is stale while no cycle has been timed. */
bool mpca_stale(const struct mpca_config *config, int64_t since, int64_t median);

#endif
