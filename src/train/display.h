/* Caffe's `display` and `average_loss`: a log line every so many steps, with the mean loss of the
 * last steps. */
#ifndef PL_TRAIN_DISPLAY_H
#define PL_TRAIN_DISPLAY_H

#include "base/arena.h"
#include "base/logger.h"
#include "train/ledger.h"

/* The mean of the newest losses that together stand for `most` steps or more. */
struct mean_loss {
    struct mean_loss_entry {
        uint64_t steps;
        double loss;
    } * at; /* a ring */
    size_t most, count, next;
};

/* ERR_NOMEM */
int mean_loss_init(struct mean_loss *m, size_t most, struct arena *arena);
/* Adds the mean loss of `steps` (at least 1). */
void mean_loss_add(struct mean_loss *m, uint64_t steps, double loss);
double mean_loss(const struct mean_loss *m);

struct display {
    uint64_t every; /* 0: never */
    uint64_t steps; /* where the last report stood */
    struct mean_loss mean;
};

/* The learning rate of the step that follows, as its user wrote it. */
double display_rate(const Paceline__Job *job, const struct progress *progress, size_t records);

/* From where a run begins or continues. ERR_NOMEM */
int display_init(struct display *d, const Paceline__Job *job, uint64_t steps, struct arena *arena);

/* Called after the ledger has taken a report: of a worker that trains alone, whose loss is a mean
 * already, or of an exchange. Writes a log line when a multiple of `every` steps was passed.
 * `records`: of the training set. */
void display_report(struct display *d, const struct ledger *ledger, const Paceline__Job *job,
                    size_t records, bool lone, const struct logger *log);

#endif
