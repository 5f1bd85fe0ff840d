/* Planning a job: what a run of it would take on the machines of a cluster file, for each strategy
 * and number of workers, without a run. */
#ifndef PACELINE_PLAN_H
#define PACELINE_PLAN_H

#include "paceline/sim.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero stands for the default. */
typedef struct pl_plan_options {
    uint32_t workers_min; /* 1 */
    uint32_t workers_max; /* the nodes of the cluster, which are the most, but not above 16 */
    double price;         /* of a worker's machine for an hour, in any currency; 0 */
} pl_plan_options;

/* The source of the time of a step. All other numbers are modelled from it and from the cluster. */
typedef enum pl_plan_source {
    PL_PLAN_STATED,   /* step_seconds of the cluster file */
    PL_PLAN_MEASURED, /* on this machine, which counts as a node of speed 1 */
    PL_PLAN_SCALED,   /* step_seconds, times the measured ratio of this batch's step to that of the
                         job's batch */
} pl_plan_source;

/* A strategy on the first so many nodes of the cluster. A round ends with an exchange; of `single`
 * it is a step. */
typedef struct pl_plan_row {
    const char *strategy;  /* static */
    const char *algorithm; /* of the all-reduce; "": there is none. Static */
    uint32_t workers;
    uint32_t batch;           /* records of a worker's step */
    double step_s;            /* of the slowest worker */
    pl_plan_source step_from; /* its source */
    double round_steps;       /* of a worker, in a round */
    double round_s;
    double exchange_s; /* of a round: how much longer it is than the slowest worker's computing */
    double samples_per_s;
    double
        carried; /* share of the exchanges that the links can carry; less than 1 for gossip alone */
    double utilisation;     /* mean over the workers of the share of time in which they compute */
    uint64_t worker_bytes;  /* sent and received in a round, of the worker with most of them */
    uint64_t driver_bytes;  /* likewise of the driver */
    uint64_t worker_memory; /* of the worker with most; without the process itself */
    double epoch_s;         /* one pass over the training records */
    double epoch_cost;      /* its price, of the workers' machines */
} pl_plan_row;

typedef struct pl_plan_note {
    char text[256];
} pl_plan_note;

typedef struct pl_plan_report {
    size_t records;   /* of the training set, less those held out for validation */
    pl_plan_row *row; /* by number of workers, then by strategy */
    size_t rows;
    /* Row with the most samples a second; of those within 2 % the fewest workers. A row whose links
     * carry less than half of its exchanges is never the best. SIZE_MAX: there is none. */
    size_t best;
    size_t single;  /* row of one worker; SIZE_MAX: it was not requested, or cannot be planned */
    size_t several; /* best row of several workers; SIZE_MAX: there is none */
    /* Lines on what is not in the rows: strategies and numbers of workers that are missing and why,
     * and what the model leaves out. */
    pl_plan_note *note;
    size_t notes;
} pl_plan_report;

/* Predict the rounds of the job's strategy, with its fields, and of each other one, with its
 * defaults, for each number of workers. The training data is opened for its records and the net
 * planned; steps are timed on this machine, less than two seconds for each batch, where the cluster
 * file has no step_seconds, and at each batch besides the job's where the job has a global_batch.
 * The report is written on success only, and freed by pl_plan_release. `options` may be NULL.
 *
 * Not predicted: evaluations, checkpoints, changes of membership, lost messages, and how many
 * epochs a strategy needs. Faults, delays and jitter of the cluster file are left out.
 *
 * PL_ERR_INPUT: the job or its data is wrong; PL_ERR_USAGE naming the option;
 * PL_ERR_UNSUPPORTED: no strategy can be planned; PL_ERR_DIVERGED, PL_ERR_NOMEM. Source:
 * src/plan/round.h */
int pl_plan(pl_engine *engine, const pl_job *job, const pl_cluster *cluster,
            const pl_plan_options *options, pl_plan_report *report);

/* It may be called twice. */
void pl_plan_release(pl_plan_report *report);

#ifdef __cplusplus
}
#endif
#endif
