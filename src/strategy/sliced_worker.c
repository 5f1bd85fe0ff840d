/* `allreduce` where the model is in slices (SparkDML §2.2): one replica, whose F members take the
 * same records in each step and update a slice each,
 *
 *     x_f ← x_f − η · g_f ,
 *
 * which is the optimizer of one worker, since the updates of an element depend on that element
 * alone. No gradient is exchanged: the gathers and sums within the step have made g_f complete. The
 * step ends with an exchange of one number among all slices, the commit point of the run: the uses
 * for which the driver has requested the model of the first member. */
#include "strategy/slice_group.h"

static bool is_first(const struct member *m)
{
    return members_rank(&m->progress.sharers, m->world->self) == 0;
}

/* The records of the step count once, as those of the first member. A member that is to leave stops
 * the run, since the others cannot continue. */
static int run_gradient(struct member *m, uint64_t samples, struct exchange_meta *mine)
{
    struct learner *l = m->learner;
    l->optim.scale = strategy_rate_scale(m->job, samples);
    *mine = (struct exchange_meta){
        .weight = 1,
        .stop_votes = atomic_load(&m->group->stop) || group_is_leaving(m->group),
        .hash_min = UINT64_MAX,
    };
    int rc = learner_gradient(l, m->progress.sample_offset, samples);
    if (rc == ERR_DIVERGED)
        mine->weight = 0;
    if (is_first(m)) {
        mine->samples = samples;
        mine->loss = l->loss * (double)samples;
    }
    return rc == ERR_DIVERGED ? OK : rc;
}

static int commit_step(struct slice_group *g, struct exchange *lane, uint64_t samples,
                       const struct exchange_meta *mine)
{
    struct member *m = g->m;
    uint32_t requests = is_first(m) ? atomic_load(&m->group->model_requests) : 0;
    lane->input.at[0] = (float)requests;
    int rc = exchange_run(lane, mine);
    if (rc != OK)
        return rc;
    const struct exchange_meta *meta = exchange_result_meta(lane);
    if (members_count(&meta->participants) != g->slice.count)
        return slice_group_await_end(g);
    if (meta->weight < (double)g->slice.count)
        return ERR_DIVERGED;
    learner_update(m->learner, m->progress.sample_offset);
    lane->cost.bytes += slice_group_take_bytes(g);
    m->model_requests = (uint32_t)exchange_result(lane)->at[0];
    strategy_advance(&m->progress, 1, samples, meta);
    return m->on_commit(m, lane);
}

static int collect_slices(struct member *m)
{
    return slice_group_collect(m->own);
}

static int open_slices(struct member *m, struct exchange **lane)
{
    struct exchange_config config = strategy_exchange_config(m->job);
    struct slice_group *g = m->own = arena_new(m->arena, struct slice_group);
    int rc = g ? slice_group_open(g, m) : ERR_NOMEM;
    config.plain = true;
    if (rc == OK)
        rc = lanes_open(&m->lanes, m->group, false, 1, &config, m->progress.exchanges, m->arena,
                        lane);
    m->collect_slices = collect_slices;
    m->learner->meet = slice_group_meet;
    m->learner->meet_user = g;
    return rc;
}

/* All slices end at the same commit point, behind which each has the whole model. */
int sliced_worker(struct member *m)
{
    struct exchange *lane;
    size_t records = m->learner->epoch_records;
    int rc = open_slices(m, &lane);
    while (rc == OK && !strategy_done(m->job, &m->progress, records)) {
        uint64_t samples = strategy_step_samples(m->job, &m->progress, records);
        struct exchange_meta mine;
        rc = run_gradient(m, samples, &mine);
        if (rc == OK)
            rc = commit_step(m->own, lane, samples, &mine);
    }
    return rc == OK || rc == ERR_STOP ? collect_slices(m) : rc;
}

void sliced_close(struct member *m)
{
    if (m->own)
        slice_group_close(m->own);
}
