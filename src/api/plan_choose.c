/* The strategy `auto`: the job that a plan chooses. */
#include "api/api.h"
#include "api/guard.h"
#include "paceline/plan.h"

#include <inttypes.h>
#include <stdio.h>

int pl_plan_is_wanted(const pl_job *job, const char **cluster)
{
    const Paceline__Job *message = job->message;
    bool wanted = job_is_auto(message);
    if (cluster)
        *cluster = wanted ? message->strategy->auto_->cluster : NULL;
    return wanted;
}

static int choose_row(const pl_job *job, const pl_plan_report *report, pl_job **out)
{
    struct err *err = &job->engine->error;
    char taken[JOB_TAKEN_MAX], workers[32];
    pl_job *chosen;
    if (report->best == SIZE_MAX)
        return err_set(err, ERR_UNSUPPORTED,
                       "strategy.auto: the plan has no best row; name a strategy");
    const pl_plan_row *best = &report->row[report->best];
    int rc = api_job_copy(job, &chosen);
    if (rc != OK)
        return rc;
    snprintf(workers, sizeof workers, "workers=%" PRIu32, best->workers);
    rc = job_set_strategy(chosen->message, best->strategy, err);
    if (rc == OK && !chosen->message->has_workers_min)
        rc = job_override(chosen->message, workers, taken, err);
    if (rc == OK)
        *out = chosen;
    else
        pl_job_free(chosen);
    return rc;
}

int pl_plan_choose(const pl_job *job, const pl_plan_report *report, pl_job **out)
{
    RETURN_GUARDED(job->engine, choose_row(job, report, out));
}
