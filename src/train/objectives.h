/* Objectives: evaluates the global model every so many exchanges, concurrently with training,
 * remembers the best score, checks the stop rules that depend on an error, and lets a model of text
 * draw one. The holder of the global model calls it, never a strategy. */
#ifndef PL_TRAIN_OBJECTIVES_H
#define PL_TRAIN_OBJECTIVES_H

#include "learner/text_sampler.h"
#include "learner/workspace.h"
#include "strategy/strategy.h"
#include "train/events.h"

#include <stdatomic.h>

struct objectives {
    const Paceline__Job *job;
    const struct corpus *corpus;
    struct workspace *ws; /* its test net; not used by a learner while objectives run */
    struct world *world;
    const struct events *events;
    const atomic_int *stop; /* above 0: evaluate no more; NULL: never */
    size_t epoch_records;   /* samples of an epoch of the run */
    size_t most;            /* records of each set that are evaluated, from the first; 0: as the
                               job sets it */
    double batch_seconds;   /* seconds of an evaluated batch on a node with speed 1 */
    const struct slice_meeting *meeting; /* of a slice, which measures and draws with others, set
                                            behind objectives_init; else NULL */
    struct text_sampler *sampler;        /* owned; NULL: the run is over no text, or draws none */
    double unit_seconds;                 /* seconds of a unit that is drawn, likewise */
    struct evaluation last[SET_COUNT];
    uint64_t evaluated; /* times */
    double error;       /* last of the validation set, or of the test set without it; -1: the net
                           has none, or there is no set */
    double best_score;  /* lowest validation error so far, or loss; INFINITY: none. The test set
                           decides nothing */
    bool best;          /* the last evaluation was the best */
    struct err err;     /* message of a failed evaluation */
};

void objectives_init(struct objectives *o, struct world *world, const Paceline__Job *job,
                     const struct corpus *corpus, struct workspace *ws, const struct events *events,
                     double step_seconds);

/* Let the model draw a text at each evaluation, if the job's training data is one and the net can;
 * if it cannot, the log says why. Of a model in slices: with `meeting` only. ERR_NOMEM */
int objectives_open_text(struct objectives *o, const struct logger *log, struct err *err);

/* Room from the arena for the text that slices draw, and the driver gets. ERR_NOMEM */
int objectives_open_drawn(const Paceline__Job *job, struct arena *arena, struct drawn_text *text);

/* Free what is not the caller's. */
void objectives_release(struct objectives *o);

/* Exchanges between two evaluations, where each exchange commits `batches` batches: as the job sets
 * it, or about once an epoch of `records`. */
uint64_t objectives_every(const Paceline__Job *job, size_t records, uint64_t batches);

/* Evaluate the validation and the test set on (x, s), with an `eval` event for each, and draw a
 * text, with a `sample` event. `place` is where the run stands in the stream of records, `step` the
 * steps of each worker.
 * ERR_END, without an event, when `stop` is raised meanwhile.
 * ERR_STOP when an error that `stop` asks for is reached; what the world's work returns; ERR_INPUT,
 * ERR_IO or ERR_NOMEM when a record cannot be read, which `err` names. */
int objectives_evaluate(struct objectives *o, const struct vec *x, struct vec *s, uint64_t offset,
                        uint64_t step);

/* The same in steps, where other nodes have the model: its slices measure it, each of them the same
 * records, and draw the text, each of them all units, without an event; and the driver judges by
 * what they have found, and reports the text; no bytes: there is none. Also ERR_NOMEM for a slice's
 * text, and the errors of `meeting` */
int objectives_measure(struct objectives *o, const struct vec *x, struct vec *s, uint64_t step,
                       struct net_result sum[SCORES_SETS]);
int objectives_draw(struct objectives *o, const struct vec *x, struct vec *s, struct buf *drawn);
int objectives_judge(struct objectives *o, const struct net_result sum[SCORES_SETS],
                     uint64_t offset, uint64_t step);
void objectives_report_text(const struct objectives *o, const void *drawn, size_t n,
                            uint64_t offset, uint64_t step);

#endif
