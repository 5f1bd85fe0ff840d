/* Snapshots: the global model as Caffe's users expect it, PREFIX_iter_N.caffemodel for N steps of
 * each worker. With an absolute prefix they are written there, and its folder must exist; otherwise
 * into the run directory, under the last part of the prefix. No run overwrites another's snapshots.
 */
#ifndef PL_TRAIN_SNAPSHOT_H
#define PL_TRAIN_SNAPSHOT_H

#include "train/checkpoint.h"

struct snapshot {
    const Paceline__Job *job;
    const struct rundir *dir;
    Caffe__NetParameter *net; /* the training phase; NULL: the job wants no snapshots */
};

/* ERR_INPUT, ERR_UNSUPPORTED: the net; ERR_NOMEM. `dir` NULL: nothing will be written. */
int snapshot_open(struct snapshot *s, const Paceline__Job *job, const struct rundir *dir,
                  struct err *err);
void snapshot_close(struct snapshot *s);

/* An absolute prefix may be another run's, too. ERR_INPUT: of a later step than `steps`, where this
 * run begins, there is a snapshot already, which it would replace. */
int snapshot_check_free(const struct snapshot *s, uint64_t steps, struct err *err);

/* Is the model to be written when the run ends? */
bool snapshot_at_end(const struct snapshot *s);

/* Write x and s at `model`, by the layout. ERR_IO, ERR_INPUT, ERR_NOMEM */
int snapshot_write(const struct snapshot *s, const struct model_layout *layout, const float *model,
                   uint64_t steps, struct err *err);

/* The layers of a net that take part in training; owned. ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM */
int snapshot_net(const Paceline__Job *job, Caffe__NetParameter **out, struct err *err);

#endif
