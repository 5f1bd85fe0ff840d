/* The learning-rate range test: how a job's loss moves while the rate grows (Smith 2017,
 * arXiv:1506.01186, §3.3; Elastic, §2.2.3). */
#ifndef PACELINE_LR_RANGE_H
#define PACELINE_LR_RANGE_H

#include "paceline/flag.h"
#include "paceline/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A step of the test. */
typedef struct pl_lr_step {
    double rate;
    double loss;     /* mean over the step's records, before its update */
    double smoothed; /* an exponential mean of the losses over a fiftieth of the test's steps */
    double accuracy; /* of the model after the step, as a part of 1; -1: it was not measured */
} pl_lr_step;

/* Zero or NULL stands for the default. */
typedef struct pl_lr_range_options {
    size_t size;     /* sizeof this struct */
    double from, to; /* rates of the first and the last step, 0 < from < to; 1e-5 and 10 */
    uint32_t steps;  /* 2 to 100,000; 300 */
    bool linear;     /* rates grow by equal differences, in place of equal ratios */
    /* Set it, from any thread or a signal handler: the test ends after the step under way, with the
     * steps that there are. May be NULL. */
    const pl_flag *stop;
    /* Called after each step, by the calling thread or one that it waits for. May be NULL. */
    void (*step)(void *user, const pl_lr_step *step, uint32_t number, uint32_t of);
    void *user;
} pl_lr_range_options;

typedef enum pl_lr_end {
    PL_LR_COMPLETE,   /* after its last step */
    PL_LR_DIVERGED,   /* the smoothed loss was above four times its least value */
    PL_LR_NOT_FINITE, /* the loss was not finite: that step is the first that is missing */
    PL_LR_STOPPED,    /* on request */
} pl_lr_end;

typedef struct pl_lr_range_report {
    pl_lr_step *step;
    size_t steps; /* taken */
    pl_lr_end end;
    /* The suggested range, by the fall F of the smoothed loss from its first value to its least:
     * the first rate at which it has made a tenth of F, and the first at which it has made 95 % of
     * F. Not found where F is at most a twentieth of the first value. */
    bool found;
    double low, high;
    double least;     /* the rate of the least smoothed loss */
    bool still_falls; /* that is the last step's: a higher `to` may show more */
    uint32_t batch;   /* records of a step */
    /* The set that accuracies are of, "validation" or, without one, "test"; "": none was measured.
     * Its first `accuracy_records` records. */
    const char *accuracy_set;
    size_t accuracy_records;
    uint64_t reserved[8]; /* room for further fields; 0 */
} pl_lr_range_report;

/* Train one learner of the job (its net, data, batch, optimizer, initial weights) for some steps
 * while the rate grows from step to step, in place of the job's schedule and warm-up. Strategy and
 * workers of the job do not count. The accuracy is measured about 30 times, on up to 1000 records.
 * It costs the steps, and those; and memory as a worker of the job. The report is written on
 * success only, and freed by pl_lr_range_release. `options` may be NULL.
 *
 * PL_ERR_INPUT: the job or its data is wrong; PL_ERR_USAGE naming the option; PL_ERR_UNSUPPORTED;
 * PL_ERR_DIVERGED: the loss of the first step was not finite; PL_ERR_STOP: stopped before the first
 * step ended; PL_ERR_NOMEM. One thread at a time may use an engine. */
int pl_lr_range(pl_engine *engine, const pl_job *job, const pl_lr_range_options *options,
                pl_lr_range_report *report);

/* It may be called twice. */
void pl_lr_range_release(pl_lr_range_report *report);

#ifdef __cplusplus
}
#endif
#endif
