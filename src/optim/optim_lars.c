/* Layer-wise adaptive rate scaling (LARS), You, Gitman and Ginsburg 2017, Algorithm 1. Each segment
 * has a rate of its own,
 *
 *     λ_l = trust · ‖x_l‖ / (‖dx_l‖ + decay · ‖x_l‖) ,
 *
 * so that a step changes all of them by about the same share:
 *
 *     V ← μV + η · λ_l · (dx + decay · x);  x ← x − V .
 *
 * A segment that is 0, or whose gradient is, has λ_l = 1, as a bias does that begins at 0: it could
 * not leave 0 otherwise. The norms are over fixed blocks, so that replicas agree (vec_dot). */
#include "base/fault.h"
#include "optim/optim_list.h"

#include <math.h>

static float trust_ratio(const struct optim_step *step, const struct segment *segment,
                         const struct vec *x, const struct vec *dx)
{
    struct range r = {segment->offset, segment->len};
    double decay = (double)step->decay * (double)segment->decay_mult;
    double norm = sqrt(vec_dot(x, x, r)), gradient = sqrt(vec_dot(dx, dx, r));
    if (norm == 0 || gradient == 0)
        return 1;
    return (float)((double)step->solver->trust * norm / (gradient + decay * norm));
}

static void lars_update(const struct optim_step *step, struct vec *x, const struct vec *dx,
                        struct vec *state, const struct segments *table, struct range range)
{
    PL_ASSERT(range.from == 0 && range.len == x->n);
    for (size_t i = 0; i < table->count; i++) {
        const struct segment *segment = &table->at[i];
        if (segment->lr_mult == 0)
            continue;
        const struct vec_sgd rule = {
            .rate = step->rate * trust_ratio(step, segment, x, dx),
            .momentum = step->solver->has_momentum ? step->solver->momentum : 0,
            .decay = step->decay,
        };
        vec_sgd(x, dx, &state[0], &rule, table, (struct range){segment->offset, segment->len});
    }
}

const struct optim_ops optim_lars = {
    .type = "LARS",
    .reads = OPTIM_MOMENTUM | OPTIM_TRUST,
    .states = 1,
    .state_name = {"momentum"},
    .keeps_step = true,
    .whole = true,
    .update = lars_update,
};
