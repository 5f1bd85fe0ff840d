#include "cli/auto_strategy.h"

#include "cli/number.h"
#include "cli/output.h"
#include "cli/run_output.h"

#include <stdio.h>

/* "pace with 4 workers, 12,345 samples/s: 3.20 times one worker". */
static void write_reason(const pl_plan_report *report, char reason[CHOICE_TEXT_MAX])
{
    const pl_plan_row *best = &report->row[report->best];
    int n = snprintf(reason, CHOICE_TEXT_MAX, "%s with %u worker%s: %.0f samples/s", best->strategy,
                     best->workers, number_plural(best->workers, "s"), best->samples_per_s);
    if (report->single == SIZE_MAX || report->several == SIZE_MAX)
        return;
    const pl_plan_row *one = &report->row[report->single], *several = &report->row[report->several];
    double gain = several->samples_per_s / one->samples_per_s;
    if (report->best == report->single)
        snprintf(reason + n, CHOICE_TEXT_MAX - (size_t)n,
                 "; %u workers, with %s, reach %.2f times as many", several->workers,
                 several->strategy, gain);
    else
        snprintf(reason + n, CHOICE_TEXT_MAX - (size_t)n, ", %.2f times those of one worker", gain);
}

static int plan_and_choose(pl_engine *engine, pl_job **job, const pl_cluster *cluster,
                           char reason[CHOICE_TEXT_MAX])
{
    pl_plan_report report;
    pl_job *chosen;
    int rc = pl_plan(engine, *job, cluster, NULL, &report);
    if (rc != PL_OK)
        return rc;
    rc = pl_plan_choose(*job, &report, &chosen);
    if (rc == PL_OK) {
        write_reason(&report, reason);
        pl_job_free(*job);
        *job = chosen;
        output_line("chosen: %s", reason);
    }
    pl_plan_release(&report);
    return rc;
}

int auto_strategy_choose(pl_engine *engine, pl_job **job, const pl_cluster *cluster,
                         const pl_run_options *survey, char reason[CHOICE_TEXT_MAX])
{
    const char *file;
    pl_cluster *found = NULL;
    int rc = PL_OK;
    reason[0] = '\0';
    if (!pl_plan_is_wanted(*job, &file))
        return PL_OK;
    if (!cluster && file)
        rc = pl_cluster_load(engine, file, &found);
    else if (!cluster && survey)
        rc = pl_survey(engine, *job, 0, survey, &found);
    else if (!cluster) /* the run refuses it */
        return PL_OK;
    if (rc == PL_OK)
        rc = plan_and_choose(engine, job, cluster ? cluster : found, reason);
    pl_cluster_free(found);
    return rc;
}
