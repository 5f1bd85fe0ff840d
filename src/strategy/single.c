/* `single`: one worker, no communication. The baseline that every other strategy is held against.
 */
#include "strategy/strategy.h"

static int single_worker(struct member *m)
{
    struct learner *l = m->learner;
    size_t records = l->epoch_records;
    while (!strategy_done(m->job, &m->progress, records)) {
        struct stretch all = strategy_begin_step(m, &m->progress, 0, 1);
        int rc = learner_step(l, all.start, all.count);
        if (rc != OK)
            return rc;
        m->progress.sample_offset += all.count;
        m->progress.steps++;
        m->progress.exchanges++;
        rc = m->on_commit(m, NULL);
        if (rc != OK)
            return rc == ERR_STOP ? OK : rc;
    }
    return OK;
}

static int single_configure(const Paceline__Job *job, struct strategy_traits *traits,
                            struct err *err)
{
    (void)job, (void)err;
    traits->round = 1;
    return OK;
}

const struct strategy_ops strategy_single = {
    .name = "single",
    .configure = single_configure,
    .worker = single_worker,
};
