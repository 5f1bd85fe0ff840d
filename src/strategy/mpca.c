/* `mpca`: multi-phase coordinated asynchronous SGD (MPCA §4). The model is cut into shards, each
 * exchanged in a lane of its own; while one is reduced, another is prepared and a third broadcast.
 * Workers train meanwhile, each at its own pace; a penalty holds them to the global model:
 *
 *     a worker, every step                                  symbols are those of mpca_rules.h
 *         x ← x − α(x − x̃*)             Eq. 7 (displace)
 *         g = ∇ℓ(x)                     + α(x − x̃*), Eq. 6 (gradient)
 *         x ← the optimizer's step
 *         τ_s ← τ_s + 1                 of each shard s
 *
 *     shard s, exchange after exchange                      c of them are complete
 *         R  = Σ τ_s·x_s / Σ τ_s        Eq. 9; τ_s is counted from 0 again
 *         x̃ ← (1 − β_c)x̃ + β_c·R        Eq. 8
 *         ṽ ← δṽ + (1 − δ)·(change of x̃)  Eq. 4
 *         x̃* = x̃ + γ_c·ṽ                Eq. 5, sent to all */
#include "strategy/phased.h"

static const Paceline__Mpca *settings_of(const Paceline__Job *job)
{
    return job->strategy->mpca;
}

static bool tilts_gradient(const Paceline__Job *job)
{
    return settings_of(job)->penalty == PACELINE__MPCA__PENALTY__gradient;
}

static struct phased_settings read_settings(const Paceline__Job *job)
{
    const Paceline__Mpca *set = settings_of(job);
    return (struct phased_settings){
        .config =
            {
                .delta = set->delta,
                .beta = set->beta,
                .gamma = set->gamma,
                .ramp = set->ramp,
                .alpha = set->alpha,
                .alpha_high = set->alpha_high,
                .alpha_hold = set->alpha_hold,
                .alpha_decay = set->alpha_decay,
                .stale_limit = set->stale_limit,
            },
        .shards = set->shards,
        .phases = set->phases,
        .symmetric = set->coordination == PACELINE__MPCA__COORDINATION__symmetric,
        .on_arrival = set->adopt == PACELINE__MPCA__ADOPT__arrival,
        .own_vector = tilts_gradient(job),
        .equal = set->weights == PACELINE__MPCA__WEIGHTS__equal,
        .states = true,
        .give_passes = 1,
    };
}

/* x̃* pulls the model from the next step on; nothing else changes. */
static void record_adoption(struct phased_worker *w, struct phased_lane *lane, uint64_t n,
                            const struct vec *result)
{
    (void)n, (void)result;
    int64_t now = world_now(w->node.world);
    mpca_times_record(&lane->cycles, now - lane->adopted_at);
    lane->adopted_at = now;
}

/* α of the shard now; none towards an x̃* that is out of date. */
static float alpha_of(struct phased_worker *w, struct phased_lane *lane)
{
    int64_t since = world_now(w->node.world) - lane->adopted_at;
    bool stale = mpca_stale(&w->node.settings.config, since, mpca_times_median(&lane->cycles));
    if (stale && !lane->stale)
        log_warn(w->node.group->log,
                 "shard %u: no new global model for %.3f s; this worker trains without the penalty "
                 "until one arrives",
                 lane->exchange.lane, world_seconds(since));
    lane->stale = stale;
    return stale ? 0 : mpca_alpha(&w->node.settings.config, lane->c);
}

static void displace_model(struct phased_worker *w, struct learner *l)
{
    for (uint32_t i = 0; i < w->node.lanes; i++) {
        struct phased_lane *lane = &w->node.lane[i];
        struct vec x = phased_shard(lane, &l->x);
        mpca_displace(&x, &lane->star, alpha_of(w, lane), vec_all(&x));
    }
}

static void tilt_gradient(struct phased_worker *w, struct learner *l)
{
    for (uint32_t i = 0; i < w->node.lanes; i++) {
        struct phased_lane *lane = &w->node.lane[i];
        struct vec x = phased_shard(lane, &l->x), dx = phased_shard(lane, &l->dx),
                   own = phased_shard(lane, &w->own);
        mpca_tilt(&dx, &x, &lane->star, alpha_of(w, lane), vec_all(&x), &own);
    }
}

static int take_step(struct phased_worker *w, struct stretch share)
{
    struct learner *l = w->m->learner;
    if (!tilts_gradient(w->m->job))
        displace_model(w, l);
    int rc = learner_gradient(l, share.start, share.count);
    if (rc != OK)
        return rc;
    if (tilts_gradient(w->m->job))
        tilt_gradient(w, l);
    learner_update(l, share.start);
    return OK;
}

const struct phased_rule mpca_rule = {
    .settings = read_settings, .adopt = record_adoption, .step = take_step};

const struct strategy_ops strategy_mpca = {
    .name = "mpca",
    .configure = phased_configure,
    .worker = phased_worker,
    .close = phased_close,
    .collect_model = phased_collect,
    .last_model = phased_last_model,
    .extras = 1,
    .extra_name = {"joint_direction"},
    .driver = phased_driver,
};
