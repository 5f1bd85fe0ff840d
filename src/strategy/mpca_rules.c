#include "strategy/mpca_rules.h"

#include "base/fault.h"
#include "base/status.h"

#include <math.h>

const struct mpca_config mpca_config_default = {
    .delta = 0.8f,
    .beta = 0.9f,
    .gamma = 0.7f,
    .ramp = 20,
    .alpha = 0.05f,
    .alpha_high = 0.5f,
    .alpha_hold = 2,
    .alpha_decay = 0.8f,
    .stale_limit = 4,
};

/* The finished part of the ramp, 0 to 1. */
static double ramped_gamma(const struct mpca_config *config, uint64_t c)
{
    return c < config->ramp ? (double)c / config->ramp : 1;
}

float mpca_beta(const struct mpca_config *config, uint64_t c)
{
    return (float)pow((double)config->beta, ramped_gamma(config, c));
}

float mpca_gamma(const struct mpca_config *config, uint64_t c)
{
    return (float)((double)config->gamma * ramped_gamma(config, c));
}

float mpca_fresh(const struct mpca_config *config)
{
    return config->fresh > 0 ? config->fresh : 1 - config->delta;
}

float mpca_alpha(const struct mpca_config *config, uint64_t c)
{
    if (c < config->alpha_hold)
        return 0;
    double target = (double)config->alpha, above = (double)config->alpha_high - target;
    return (float)(target +
                   above * pow((double)config->alpha_decay, (double)(c - config->alpha_hold)));
}

void mpca_displace(struct vec *x, const struct vec *star, float alpha, struct range r)
{
    if (alpha > 0)
        vec_penalise(x, alpha, star, r);
}

/* Not dx + αx − αx̃*, whose large terms nearly cancel. */
void mpca_tilt(struct vec *dx, const struct vec *x, const struct vec *star, float alpha,
               struct range r, struct vec *scratch)
{
    static const float minus[] = {1, -1};
    if (!(alpha > 0))
        return;
    vec_weighted_sum(scratch, minus, (const struct vec *const[]){x, star}, 2, r);
    vec_axpy(dx, alpha, scratch, r);
}

/* As the equation is written: by 1/Σ τ^i, which is rounded to float once. */
void mpca_mean(struct vec *y, struct range r, const struct mpca_sum *sum)
{
    if (sum->tau == 0)
        return;
    if (y->at + r.from != sum->x)
        vec_import(y, r, sum->x);
    vec_scale(y, (float)(1 / (double)sum->tau), r);
}

struct preparation {
    struct mpca_joint *joint;
    const struct mpca_config *config;
    uint64_t c;
    size_t from; /* where the sum begins */
    const struct mpca_sum *sum;
};

static void prepare_block(void *user, struct range r)
{
    const struct preparation *p = user;
    const struct mpca_config *config = p->config;
    const struct mpca_model *now = &p->joint->now;
    struct mpca_model *next = &p->joint->next;
    const struct mpca_sum sum = {p->sum->x + (r.from - p->from), p->sum->tau};
    struct vec *R = &next->star; /* until x̃* replaces it */
    vec_copy(&next->x, &now->x, r);
    vec_copy(&next->v, &now->v, r);
    /* Eq. 9: R = Σ τ^i·x^i / Σ τ^i */
    mpca_mean(R, r, &sum);
    /* Eq. 8: x̃_t = (1 − β)·x̃_{t−1} + β·R */
    vec_lerp(&next->x, mpca_beta(config, p->c), R, r);
    /* Eq. 4: ṽ_t = δ·ṽ_{t−1} + (1 − δ)·(x̃_t − x̃_{t−1});  Eq. 5: x̃* = x̃_t + γ·ṽ_t */
    vec_extrapolate(&next->star, &next->v, &next->x, &now->x, config->delta, mpca_fresh(config),
                    mpca_gamma(config, p->c), r);
}

void mpca_prepare(struct mpca_joint *joint, const struct mpca_config *config, uint64_t c,
                  struct range r, const struct mpca_sum *sum)
{
    if (sum->tau == 0) {
        vec_copy(&joint->next.x, &joint->now.x, r);
        vec_copy(&joint->next.v, &joint->now.v, r);
        vec_copy(&joint->next.star, &joint->now.star, r);
        return;
    }
    struct preparation p = {joint, config, c, r.from, sum};
    vec_each_block(r, prepare_block, &p);
}

/* With d the change of x̃ and f the part that ṽ takes of it,
 *     x̃* − x̃*_before = d + γ·ṽ − γ_before·ṽ_before  and  ṽ = δ·ṽ_before + f·d, so that
 *     d = (x̃* − x̃*_before + (γ_before − γδ)·ṽ_before) / (1 + γf). */
void mpca_follow(struct vec *v, const struct mpca_config *config, const struct vec *v_before,
                 const struct mpca_star *before, const struct mpca_star *now, struct range r)
{
    double delta = config->delta, fresh = mpca_fresh(config), k = fresh / (1 + now->gamma * fresh);
    const struct vec *const from[] = {v_before, now->star, before->star};
    const float weight[] = {(float)(delta + k * (before->gamma - now->gamma * delta)), (float)k,
                            (float)-k};
    vec_weighted_sum(v, weight, from, 3, r);
}

void mpca_times_record(struct mpca_times *pace, int64_t took)
{
    pace->took[pace->cycles++ % MPCA_CYCLES_KEPT] = took;
}

int64_t mpca_times_median(const struct mpca_times *pace)
{
    int64_t sorted[MPCA_CYCLES_KEPT];
    size_t n = pace->cycles < MPCA_CYCLES_KEPT ? (size_t)pace->cycles : MPCA_CYCLES_KEPT;
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > pace->took[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = pace->took[i];
    }
    return n > 0 ? sorted[n / 2] : 0;
}

bool mpca_stale(const struct mpca_config *config, int64_t since, int64_t median)
{
    return config->stale_limit > 0 && median > 0 &&
           (double)since > (double)config->stale_limit * (double)median;
}
