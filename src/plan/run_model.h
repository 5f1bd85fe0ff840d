/* The model of a run's own step and exchange, which the run measures (ours): the time of a step
 * against the records of a worker, and the time of an exchange against the number of workers. From
 * them follow the numbers of plan/follow_batch.h.
 *
 * A run has measured few numbers of workers. The model says how far it reaches, and beyond the
 * largest measured number it is hopeful: with one number it takes exchanges for as long with all
 * others, and with none for free. A larger number is so tried once, and judged by its measurement.
 */
#ifndef PL_PLAN_RUN_MODEL_H
#define PL_PLAN_RUN_MODEL_H

#include "base/err.h"
#include "plan/follow_batch.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    RUN_MODEL_ROUNDS = 9,   /* the medians are over so many rounds, the newest */
    RUN_MODEL_SKIPS = 2,    /* rounds after a change of the number are not counted */
    RUN_MODEL_CLASSES = 48, /* of measured numbers; a later one takes the place of the first */
};

/* A round as it was, in seconds of one of its steps. */
struct run_round {
    size_t N;      /* workers */
    double b;      /* records of a worker */
    double step_s; /* the longest of all workers' steps */
    double rest_s; /* the exchange: what is left of the round, or where it overlaps, all of it */
};

/* The newest rounds of a class: (x, y) is (b, step_s) or (N, rest_s). */
struct run_class {
    long number;
    double x[RUN_MODEL_ROUNDS], y[RUN_MODEL_ROUNDS];
    size_t count; /* of all that were put in */
};

struct run_classes {
    struct run_class at[RUN_MODEL_CLASSES];
    size_t count; /* of all that were opened */
};

struct run_model {
    struct run_classes steps; /* a class is a factor of √2 in b */
    struct run_classes rests; /* a class is a number of workers */
    size_t N, same;           /* workers of the newest round, and of how many in a row */
};

void run_model_add(struct run_model *m, const struct run_round *round);

/* Have the newest rounds, enough for medians, all had N workers? */
bool run_model_is_settled(const struct run_model *m, size_t N);

/* The largest measured number of workers; 0: none. */
size_t run_model_reach(const struct run_model *m);

/* Set f's model (but for its kind) and its fixed_s. The time of one worker's round beyond
 * its step is part of each step and of no exchange. The model must have rounds.
 *
 * A step of b records takes fixed_s + b/γ: a line through the medians, if b has varied by a factor
 * of 1.5, which a line needs; else b/γ alone. An exchange takes α + βN, by the line of
 * comm_fit.h. */
void run_model_fit(const struct run_model *m, struct follow_batch *f);

#endif
