/* Steps of a job's learner on this machine. */
#ifndef PL_API_STEP_TIMING_H
#define PL_API_STEP_TIMING_H

#include "api/api.h"
#include "train/step_bench.h"

/* Time so many steps of a finished job as bench_step_run does, in a real world of their own,
 * with the engine's tuner; 0: only what is known without steps, for which nothing is tuned. The
 * result's arrays are the arena's. Errors of bench_step_run, with their message. */
int api_time_steps(pl_engine *engine, const Paceline__Job *job, uint32_t steps, struct arena *arena,
                   struct bench_step *out);

#endif
