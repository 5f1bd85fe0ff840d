/* `single`: one worker, no communication. The baseline that every other strategy is held against.
 */
#include "strategy/strategy.h"

static int single_worker(struct member *m)
{
    size_t batch = m->job->batch;
    while (!strategy_done(m)) {
        int rc = learner_step(m->learner, m->place, batch);
        if (rc != OK)
            return rc;
        m->place += batch;
        m->exchanges++;
        rc = m->committed(m);
        if (rc != OK)
            return rc == ERR_STOP ? OK : rc;
    }
    return OK;
}

const struct strategy_ops strategy_single;
const struct strategy_ops strategy_single = {
    .name = "single",
    .worker = single_worker,
};
