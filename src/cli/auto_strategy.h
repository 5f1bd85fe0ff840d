/* The strategy `auto`: a plan chooses the run's strategy and number of workers before it begins. */
#ifndef PL_CLI_AUTO_STRATEGY_H
#define PL_CLI_AUTO_STRATEGY_H

#include "cli/cli.h"
#include "paceline/plan.h"

enum { CHOICE_TEXT_MAX = 192 };

/* Replace a job with the strategy `auto` by one that a plan chooses, print the choice, and write
 * the reason into `reason`, which stays "" for any other strategy. The plan is on `cluster`, or on
 * the file that the job names, or on a survey of the job's workers, which starts them as `survey`
 * says. Where there is none of the three the job stays as it is, which no run accepts. Errors of
 * pl_cluster_load, pl_survey, pl_plan and pl_plan_choose. */
int auto_strategy_choose(pl_engine *engine, pl_job **job, const pl_cluster *cluster,
                         const pl_run_options *survey, char reason[CHOICE_TEXT_MAX]);

#endif
