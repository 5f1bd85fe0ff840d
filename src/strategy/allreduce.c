/* `allreduce`: gradients averaged at every step (SparkNet §3.1.1, "naive"; Elastic Eq. 6.1),
 *
 *     x ← x − η · Σ b_i g_i / Σ b_i ,
 *
 * which is exactly the optimizer of one worker with the batch Σ b_i: all replicas start equal,
 * apply the same mean with the same optimizer, and stay equal. Their hashes travel with every
 * HASH_EVERYth exchange. */
#include "strategy/strategy.h"

enum { HASH_EVERY = 100 };

static int gradient(struct member *m, uint64_t place, struct tally *mine)
{
    struct learner *l = m->learner;
    int rc = learner_gradient(l, place, m->job->batch);
    bool diverged = rc == ERR_DIVERGED;
    *mine = (struct tally){
        .weight = diverged ? 0 : 1, /* all batches are equal: b_i / b */
        .samples = m->job->batch,
        .loss = l->loss * m->job->batch,
        .stop_votes = atomic_load(&m->group->stop),
        .hash_min = UINT64_MAX,
    };
    if (m->course.exchanges % HASH_EVERY == 0)
        mine->hash_min = mine->hash_max = vec_hash(&l->x, vec_all(&l->x));
    return diverged ? OK : rc;
}

static int apply(struct member *m, const struct exchange *lane, uint64_t place)
{
    struct learner *l = m->learner;
    const struct tally *tally = exchange_tally(lane);
    if (tally->hash_max != 0 && tally->hash_min != tally->hash_max)
        return ERR_REPLICAS;
    if (tally->weight == 0)
        return ERR_DIVERGED;
    vec_import(&l->dx, vec_all(&l->dx), exchange_result(lane)->at);
    learner_update(l, place);
    return OK;
}

static int allreduce_worker(struct member *m)
{
    struct learner *l = m->learner;
    size_t records = l->corpus->set[SET_TRAIN].count;
    const struct exchange_how how = strategy_exchange_how(m->job);
    struct exchange *lane;
    int rc = lanes_open(&m->lanes, m->group, false, l->dx.n, &how, m->course.exchanges, m->arena,
                        &lane);
    while (rc == OK && !strategy_done(m->job, &m->course, records)) {
        uint64_t place = strategy_place(&m->course, m->world->self, 0, m->job->batch);
        struct tally mine;
        rc = gradient(m, place, &mine);
        if (rc != OK)
            break;
        vec_export(&l->dx, vec_all(&l->dx), lane->input.at);
        rc = exchange_run(lane, &mine);
        if (rc == OK)
            rc = apply(m, lane, m->course.place);
        if (rc != OK)
            break;
        strategy_advance(&m->course, 1, m->job->batch, exchange_tally(lane));
        rc = m->committed(m, lane);
    }
    return rc == ERR_STOP ? OK : rc;
}

static uint64_t allreduce_round(const Paceline__Job *job)
{
    (void)job;
    return 1;
}

const struct strategy_ops strategy_allreduce = {
    .name = "allreduce",
    .sends_gradients = true,
    .replicas_agree = true,
    .round = allreduce_round,
    .worker = allreduce_worker,
};
