#include "api/plan_step.h"

#include "api/step_timing.h"
#include "base/fault.h"
#include "base/minmax.h"

enum { TIMED_MIN = 3, TIMED_MAX = 200 };

#define TIMED_S 0.7 /* of steps that are timed, about */

/* Steps for about TIMED_S, after a few that tell how long one is. */
static int measure_step(struct plan_steps *s, const Paceline__Job *job, struct planned_batch *b)
{
    int rc = api_time_steps(s->engine, job, TIMED_MIN, s->arena, &b->learner);
    if (rc != OK)
        return rc;
    double steps = TIMED_S / (b->learner.median_ms * 1e-3);
    if (steps > 2 * TIMED_MIN)
        rc = api_time_steps(s->engine, job, (uint32_t)min_double(steps, TIMED_MAX), s->arena,
                            &b->learner);
    b->seconds = b->learner.median_ms * 1e-3 * job->iter_size;
    return rc;
}

int plan_step_learner(struct plan_steps *s, const Paceline__Job *job, bool timed,
                      const struct planned_batch **out)
{
    struct planned_batch *b = s->batch;
    while (b < s->batch + s->batches && (b->batch != job->batch || b->slices != job->slices))
        b++;
    *out = b;
    int rc = OK;
    if (b == s->batch + s->batches) {
        PL_ASSERT(s->batches < s->room);
        *b = (struct planned_batch){.batch = job->batch, .slices = job->slices};
        s->batches++;
        rc = timed ? OK : api_time_steps(s->engine, job, 0, s->arena, &b->learner);
    }
    return rc == OK && timed && b->seconds == 0 ? measure_step(s, job, b) : rc;
}

int plan_step_find(struct plan_steps *s, const Paceline__Job *job,
                   const struct planned_batch **learner, double *seconds, pl_plan_source *from)
{
    const Paceline__Cluster *c = s->cluster;
    bool stated = c->has_step_seconds, same = job->batch == s->job_batch;
    int rc = plan_step_learner(s, job, !stated || !same, learner);
    if (rc != OK)
        return rc;
    *from = !stated ? PL_PLAN_MEASURED : same ? PL_PLAN_STATED : PL_PLAN_SCALED;
    *seconds = stated ? c->step_seconds * job->iter_size : (*learner)->seconds;
    if (*from != PL_PLAN_SCALED)
        return OK;
    const struct planned_batch *whole;
    Paceline__Job *at_whole;
    rc = api_job_finish(s->given, 1, &at_whole);
    if (rc == OK) {
        rc = plan_step_learner(s, at_whole, true, &whole);
        job_free(at_whole);
    }
    if (rc == OK)
        *seconds *= (*learner)->seconds / whole->seconds;
    return rc;
}
