/* Running a job. */
#ifndef PL_TRAIN_TRAIN_H
#define PL_TRAIN_TRAIN_H

#include "base/logger.h"
#include "job/job.h"
#include "train/objectives.h"

#include <stdatomic.h>

/* What a run was, as its `end` event says. */
struct train_report {
    const char *reason; /* "epochs", "steps", "seconds", "error", "interrupted", "diverged" */
    bool has_validation, has_test;
    double validation_error, test_error, test_loss;
    double epochs;
    uint64_t samples, used, repeated, missed;
    double wall_s;
    uint64_t seed;
};

/* The run's last event, `end`. */
void train_report_event(const struct events *events, const struct train_report *report);

struct train_options {
    const Paceline__Job *job; /* finished, paths resolved */
    const struct logger *log;
    void (*line)(void *user, const char *event); /* each event as it happens */
    void *user;
    const atomic_bool *stop; /* set by anyone: end at the next commit point */
};

/* Train in this process, with one worker, and no communication.
 * ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM, ERR_DIVERGED */
int train_solo(struct world *world, const struct train_options *options,
               struct train_report *report, struct err *err);

#endif
