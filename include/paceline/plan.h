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

/* How far the simulation of rows is. */
typedef struct pl_plan_progress {
    const char *strategy; /* of the row under way; static */
    uint32_t workers;
    size_t row, rows;  /* the row under way, from 1, of so many */
    double t, seconds; /* virtual: it is there, of so many; the last exchange may end later */
} pl_plan_progress;

/* Zero stands for the default. */
typedef struct pl_plan_options {
    size_t size;          /* sizeof this struct */
    uint32_t workers_min; /* 1 */
    uint32_t
        workers_max; /* the nodes of the cluster, which are the most, but not above 16, or above
                             the workers of a job with the strategy `auto` */
    double price;    /* of a worker's machine for an hour, in any currency; 0 */
    /* Seconds of virtual time for which the best rows are simulated, from the start of the run; 0:
     * none are. */
    double simulate_s;
    /* Seconds on this machine that the simulations may take together, by an estimate from a step
     * that is measured here; where they would take longer, all of them get fewer virtual seconds,
     * and a note says so. They end at twice this time. 0: 60 */
    double simulate_limit_s;
    /* Called by the simulations several times a second, by this thread. May be NULL. */
    void (*progress)(void *user, const pl_plan_progress *progress);
    void *user;
    /* Set it, from any thread or a signal handler, to end the simulations, as pl_run_options.stop;
     * the plan then has what has been simulated until now. May be NULL. */
    const pl_flag *stop;
} pl_plan_options;

/* The source of the time of a step. All other numbers are modelled from it and from the cluster. */
typedef enum pl_plan_source {
    PL_PLAN_STATED,   /* step_seconds of the cluster file */
    PL_PLAN_MEASURED, /* on this machine, which counts as a node of speed 1 */
    PL_PLAN_SCALED,   /* step_seconds, times the measured ratio of this batch's step to that of the
                         job's batch */
} pl_plan_source;

/* A row's run as it was simulated (paceline/sim.h), without files, and without evaluations on the
 * way: the job's own steps, on the machines and links of the cluster file, with its jitter, faults
 * and delays. */
typedef struct pl_plan_trial {
    bool done;            /* the simulation came to its end; else a note says why there is none */
    double samples_per_s; /* between its first and its last commit point; 0: there is just one */
    double at_s;     /* virtual time of the last commit point: error and loss are of its model */
    const char *set; /* their records: "test", "validation", "": there are none; static */
    double error;    /* share of wrong answers; < 0: the net has no error rate */
    double loss;
} pl_plan_trial;

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
    pl_plan_trial trial;
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
    double simulated_s; /* virtual seconds that rows were simulated for; 0: none were */
    uint32_t evaluated; /* records at most, of which the error and the loss are: the first ones */
    bool interrupted;   /* pl_plan_options.stop was set before all was simulated */
    /* Lines on what is not in the rows: strategies and numbers of workers that are missing and why,
     * and what the model leaves out. */
    pl_plan_note *note;
    size_t notes;
    uint64_t reserved[8]; /* room for further fields; 0 */
} pl_plan_report;

/* Measure the machines of a run: the cluster to plan on, where there is no file of it.
 *
 * `workers` workers (0: as many as the job sets) are started, or waited for, as pl_run does it with
 * the job and `options`. They take steps of the job for about a second, all at the same time. Then
 * messages between all pairs of nodes measure each link, the driver's, too: in some 0.07 s for a
 * node on gigabit Ethernet, and half a second for a node on slow links. Then the run ends. The
 * cluster's step_seconds is the step of the fastest worker, which has the speed 1. The job's
 * strategy and its end do not count. Nothing is kept: `options` must have no out, resume, snapshot,
 * trace or dry_run.
 * Events of the kind `machine` have the same numbers.
 *
 * As pl_run; PL_ERR_USAGE naming the option; PL_ERR_PEER: a worker was lost; PL_ERR_DIVERGED naming
 * the worker; PL_ERR_STOP: options->stop was set. Free *out by pl_cluster_free. */
int pl_survey(pl_engine *engine, const pl_job *job, uint32_t workers, const pl_run_options *options,
              pl_cluster **out);

/* Predict the rounds of the job's strategy, with its fields, and of each other one, with its
 * defaults, for each number of workers. The training data is opened for its records and the net
 * planned; steps are timed on this machine, less than two seconds for each batch, where the cluster
 * file has no step_seconds, and at each batch besides the job's where the job has a global_batch.
 * The report is written on success only, and freed by pl_plan_release. `options` may be NULL.
 *
 * A job with slices is planned for one worker that has the whole model, and for each number of
 * replicas; up to 64 workers.
 *
 * With `simulate_s` the row of one worker and the best row of each of the three fastest strategies
 * are simulated, as pl_sim does it: the job's own run up to that virtual time, and then an error on
 * the first 1,000 records at most of the test data, or without them of the validation set. A row
 * whose vectors do not fit into memory, or whose simulation fails, becomes a note.
 *
 * Not predicted: evaluations, checkpoints, changes of membership, lost messages, and how many
 * epochs a strategy needs. Faults, delays and jitter of the cluster file are left out of what is
 * predicted.
 *
 * PL_ERR_INPUT: the job or its data is wrong; PL_ERR_USAGE naming the option;
 * PL_ERR_UNSUPPORTED: no strategy can be planned; PL_ERR_DIVERGED, PL_ERR_NOMEM. Source:
 * src/plan/round.h */
int pl_plan(pl_engine *engine, const pl_job *job, const pl_cluster *cluster,
            const pl_plan_options *options, pl_plan_report *report);

/* Has the job the strategy `auto`? Then *cluster (may be NULL) is the path of the file that it
 * names, or NULL: it names none. Valid as long as the job. */
int pl_plan_is_wanted(const pl_job *job, const char **cluster);

/* The job with the choice of its plan: the strategy of the row `best`, and that row's number of
 * workers, unless the job has limits of its own (workers_min). PL_ERR_UNSUPPORTED: no row is the
 * best; PL_ERR_INPUT; PL_ERR_NOMEM. Free *out by pl_job_free. */
int pl_plan_choose(const pl_job *job, const pl_plan_report *report, pl_job **out);

/* It may be called twice. */
void pl_plan_release(pl_plan_report *report);

#ifdef __cplusplus
}
#endif
#endif
