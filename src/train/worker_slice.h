/* A worker that has a slice of a model: it evaluates the model together with the other slices of
 * its replica, offers it to the driver, sends its part, and fetches its part of a state that the
 * run begins with. */
#ifndef PL_TRAIN_WORKER_SLICE_H
#define PL_TRAIN_WORKER_SLICE_H

#include "train/worker.h"

/* Set the hooks of a model in slices, and prepare evaluations: w->objectives, which the caller
 * releases behind the loop. ERR_NOMEM */
int worker_slice_begin(struct worker *w);

/* This worker's part of the vectors that the header announces, fetched from the driver. */
int worker_slice_fetch(struct worker *w, const struct model_header *header);

/* Behind the loop: offer the model of this replica for these uses; and a task that sends this
 * slice's part of what is offered, until worker_slice_end. ERR_NOMEM; worker_slice_offer also
 * ERR_PEER, ERR_CANCELLED */
int worker_slice_offer(struct worker *w, uint32_t uses);
int worker_slice_serve(struct worker *w);
void worker_slice_end(struct worker *w);

#endif
