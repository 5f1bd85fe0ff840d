/* `pace`: full consensus without waiting (ours). Shards are averaged back to back, as in `mpca`,
 * but no penalty pulls a worker: it moves its own progress onto the average. Relatives: LOSCAR-SGD
 * (the same merge, with unequal step counts), DaSGD, Overlap Local-SGD, SlowMo (γ).
 *
 *     shard s, exchange n                                    symbols are those of pace_rules.h
 *         R_n = Σ τ_i·p_i / Σ τ_i                            evaluated
 *         v_n                                                the motion in a step
 *         b_n = R_n + γS·v_n                                 sent to all
 *
 *     a worker, when b_n has arrived
 *         d = κ(b_n − p_i), if exchange n counted p_i;  else b_n − b_{n−1}
 *         x ← x + d;  a contribution that waits for its turn ← it + d
 *
 * So common progress sees no delay: if all workers agree, d is 0. A contribution must move with x:
 * the average would count the disagreement twice that x has already given up. The optimizer's state
 * and the state s of layers such as BatchNorm stay the worker's own; the average of s is for
 * evaluation, and for joiners.
 *
 * A leaf (phased_leaf.c) contributes p_i − b_c, its progress beyond the last b that it has, with
 * its proxy's τ, however many steps that progress took: the others' steps of that time have
 * counted, one exchange after another. It gives up all of its distance: d = b_n − p_i.
 *
 * A worker contributes again when it knows how its last contribution ended. It keeps p_i, one
 * vector more than in `mpca`. */
#include "strategy/pace_rules.h"
#include "strategy/phased.h"

/* With a wire that drops most floats an average lacks what is still owed. Extrapolation would
 * multiply that error by K, and a worker that gives up a part of its distance alone would send the
 * rest again, besides what is owed. */
static struct pace_settings read_pace(const Paceline__Job *job)
{
    const Paceline__Pace *set = job->strategy->pace;
    bool drops = strategy_wire_drops(job);
    return (struct pace_settings){
        .momentum = (double)optim_momentum(job->solver),
        .gain = set->has_gamma ? (double)set->gamma
                : drops        ? 0
                               : -1,
        .whole = drops,
    };
}

static struct phased_settings read_settings(const Paceline__Job *job)
{
    const Paceline__Pace *set = job->strategy->pace;
    return (struct phased_settings){
        .pace = read_pace(job),
        .shards = set->shards,
        .phases = STAGES,
        .symmetric = set->coordination == PACELINE__MPCA__COORDINATION__symmetric,
        .on_arrival = true,
        .own_vector = true,
        .leaf_progress = true,
        .give_passes = 2,
        .adopt_passes = 2,
    };
}

static struct pace_motion motion_of(const struct phased_settings *set,
                                    const struct exchange_meta *meta)
{
    return pace_motion(&set->pace, members_count(&meta->contributors), (uint64_t)meta->weight);
}

static struct mpca_config steer_average(const struct phased_settings *set,
                                        const struct exchange_meta *meta,
                                        const struct pace_leap *before)
{
    const struct pace_motion motion = motion_of(set, meta);
    return pace_config(&motion, before);
}

static struct pace_leap note_leap(const struct phased_settings *set,
                                  const struct exchange_meta *meta, const struct pace_leap *before)
{
    const struct pace_motion motion = motion_of(set, meta);
    return pace_leap(&motion, before);
}

static void keep_contribution(struct phased_worker *w, struct phased_lane *lane)
{
    vec_copy(&w->own, &w->m->learner->x, lane->r);
    lane->pending = true;
}

static void rebase_model(struct phased_worker *w, struct phased_lane *lane, uint64_t n,
                         const struct vec *result)
{
    struct vec x = phased_shard(lane, &w->m->learner->x), sent = phased_shard(lane, &w->own),
               before = vec_part(&lane->star, 0, x.n), b = vec_part(result, 0, lane->r.len);
    uint64_t by = atomic_load(&lane->slot.counted); /* 0: it is dropped at the next boundary */
    bool counted = lane->pending && by != 0 && by <= n;
    if (counted && lane->slot.progress)
        pace_rebase(&x, &b, &sent);
    else if (counted)
        pace_approach(&x, &b, &sent,
                      motion_of(&w->node.settings, &lane->exchange.meta[n & 1]).kappa);
    else
        pace_rebase(&x, &b, &before);
    if (lane->pending && !counted)
        pace_rebase(&sent, &b, &before);
    lane->pending &= !counted;
}

/* Neither its steps nor its progress count any more: if it has counted, they come with b. */
static void give_up_contribution(struct phased_worker *w, struct phased_lane *lane)
{
    struct vec x = phased_shard(lane, &w->m->learner->x), sent = phased_shard(lane, &w->own),
               before = vec_part(&lane->star, 0, x.n);
    pace_rebase(&x, &before, &sent);
    lane->pending = false;
}

/* Training made it before it adopted the last result, but does not wait to be asked: the lane moves
 * it likewise. No other result can have come between, unless this node was a leaf meanwhile. */
static bool renew_contribution(struct phased_lane *lane)
{
    const struct exchange *e = &lane->exchange;
    uint64_t base = lane->slot.base, last = e->completed;
    if (base + 1 == last) {
        struct vec x = vec_part(&lane->slot.x, 0, lane->r.len);
        struct vec b = vec_part(&e->result[last & 1], 0, x.n);
        struct vec before = vec_part(&lane->before, 0, x.n);
        pace_rebase(&x, &b, &before);
    }
    return base + 1 >= last;
}

static int take_step(struct phased_worker *w, struct stretch share)
{
    return learner_step(w->m->learner, share.start, share.count);
}

const struct phased_rule pace_rule = {.settings = read_settings,
                                      .steer = steer_average,
                                      .leap = note_leap,
                                      .adopt = rebase_model,
                                      .give = keep_contribution,
                                      .drop = give_up_contribution,
                                      .renew = renew_contribution,
                                      .step = take_step};

const struct strategy_ops strategy_pace = {
    .name = "pace",
    .configure = phased_configure,
    .worker = phased_worker,
    .close = phased_close,
    .collect_model = phased_collect,
    .last_model = phased_last_model,
    .extras = 1,
    .extra_name = {"joint_direction"},
    .driver = phased_driver,
};
