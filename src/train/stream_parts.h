/* The carried states of several workers' streams in one checkpoint. In a run whose shares are fixed
 * (strategy_keeps_streams) a checkpoint's request is a vote in the next exchange. Behind that
 * exchange, and behind the last one of the run, each sharer sends the states of the streams that it
 * would continue itself (carried_selection): no two send the same stream. So the table is as long
 * as that of one worker, and any number of workers resumes from it: each continues those streams
 * whose next record is its own.
 *
 * The model writer receives the states before or behind the model itself. It waits for those that
 * are missing: a checkpoint without them is written, too, and these streams begin with 0. */
#ifndef PL_TRAIN_STREAM_PARTS_H
#define PL_TRAIN_STREAM_PARTS_H

#include "train/checkpoint.h"
#include "train/model.h"

#define STREAM_PARTS_WAIT (5 * WORLD_SECOND) /* for states that are missing */

struct stream_parts {
    struct world *world;
    struct group *group;
    const struct logger *log;
    size_t streams, row;
    size_t floats; /* of a table; 0: none are kept */
    float *table;  /* the states at the commit point of: */
    uint64_t exchanges;
    struct members here; /* those whose states are in it, or cannot be used */
    float *landing;      /* receives a table */
};

/* Memory from the arena for those of the layout, which may have none, or have them from its source.
 * ERR_NOMEM */
int stream_parts_init(struct stream_parts *p, struct world *world, struct group *group,
                      const struct logger *log, const struct model_layout *layout,
                      struct arena *arena);

/* The header of a worker's states has arrived. ERR_CANCELLED */
int stream_parts_take(struct stream_parts *p, uint32_t from, const struct model_header *header);

/* A model of `from` has arrived to which the states of all sharers belong: put them behind its
 * vectors, in `model`, which has room for `room` floats, and say so in its header. Waits for those
 * that are missing, but not for workers that have left the view. ERR_PROTOCOL: the model is longer
 * than such a model is; ERR_CANCELLED */
int stream_parts_complete(struct stream_parts *p, uint32_t from, struct model_header *header,
                          float *model, size_t room);

#endif
