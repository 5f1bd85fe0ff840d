/* Reports to a worker's own user: that it has joined a run, its progress, and how it ended. */
#ifndef PL_TRAIN_WORK_PROGRESS_H
#define PL_TRAIN_WORK_PROGRESS_H

#include <stdint.h>

enum work_stage { WORK_JOINED, WORK_TRAINING, WORK_LEFT, WORK_OVER };

struct work_progress {
    enum work_stage stage;
    const char *run;        /* the job's name; valid during the call, as all is */
    uint32_t self, workers; /* this worker's number, and how many are in the run */
    uint64_t steps;         /* that it has taken since it joined */
    double loss;            /* mean since the report before */
    double samples_per_s;   /* likewise */
    const char *reason;     /* WORK_OVER: why the run ended; "": unknown */
};

/* Called by the worker's main task: WORK_TRAINING four times a second at most, the others once. */
struct work_watch {
    void (*progress)(void *user, const struct work_progress *progress);
    void *user;
};

struct worker;

/* The counters between two reports. */
struct work_meter {
    int64_t reported; /* time of the last report; 0: none */
    uint64_t steps, reported_samples, loss_steps;
    double loss; /* Σ over loss_steps */
};

void worker_show(struct worker *w, enum work_stage stage);

/* A step has been taken. */
void worker_show_step(struct worker *w);

#endif
