/* Simulated runs of the best rows of a plan. */
#ifndef PL_API_PLAN_SIMULATE_H
#define PL_API_PLAN_SIMULATE_H

#include "api/api.h"
#include "paceline/plan.h"

enum { PLAN_TRIALS_MAX = 4, PLAN_EVALUATED = 1000 /* records of a set at most */ };

/* A row and what its simulation needs. */
struct plan_trial {
    pl_plan_row *row;
    pl_job *job;     /* with the row's strategy and workers, not finished; changed */
    double step_s;   /* of a step of a core of speed 1, as a cluster file states it */
    double record_s; /* of training on a record on this machine */
    uint64_t bytes;  /* of memory, for all nodes together */
    char note[sizeof((pl_plan_note *)0)->text]; /* what is missing in the result; "": nothing */
};

struct plan_trials {
    pl_engine *engine;
    const Paceline__Cluster *cluster;
    const pl_plan_options *options;
    size_t records; /* of an epoch */
    size_t count;
    struct plan_trial trial[PLAN_TRIALS_MAX];
    double seconds; /* out: virtual, of each */
    bool shortened; /* out: for the limit; `whole_s` is what it would have taken here */
    double whole_s;
    bool interrupted; /* out */
};

/* Simulate all of them, one after the other, and write the result into each row. A simulation that
 * fails has a note. ERR_BUG */
int plan_simulate(struct plan_trials *t);

#endif
