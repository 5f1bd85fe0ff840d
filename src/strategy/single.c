/* `single`: one worker, no communication. The baseline that every other strategy is held against.
 */
#include "strategy/strategy.h"

static int single_worker(struct member *m)
{
    struct learner *l = m->learner;
    uint32_t batch = job_step_records(m->job);
    size_t records = l->corpus->set[SET_TRAIN].count;
    while (!strategy_done(m->job, &m->course, records)) {
        int rc = learner_step(l, m->course.place, batch);
        if (rc != OK)
            return rc;
        m->course.place += batch;
        m->course.steps++;
        m->course.exchanges++;
        rc = m->committed(m, NULL);
        if (rc != OK)
            return rc == ERR_STOP ? OK : rc;
    }
    return OK;
}

static uint64_t single_round(const Paceline__Job *job)
{
    (void)job;
    return 1;
}

const struct strategy_ops strategy_single = {
    .name = "single",
    .round = single_round,
    .worker = single_worker,
};
