/* A worker in a run that pauses, since it has fewer workers than the job's pause_below.
 *
 * Members follow their views, so a pause needs no message of its own. A member waits between two
 * steps. A member that was within a step when the view changed may wait in the next exchange
 * instead, which the others do not enter before the pause ends. */
#ifndef PL_TRAIN_WORKER_PAUSE_H
#define PL_TRAIN_WORKER_PAUSE_H

#include "train/worker.h"

/* If the run pauses, wait here until it has enough workers or ends. Meanwhile the lanes follow the
 * views, joiners are admitted, and models are published on request. `committed`: at a commit point,
 * otherwise within a round. Where this worker could not be a donor, it does not wait. ERR_STOP: it
 * leaves; w->leave.left is set. ERR_DRIVER, ERR_CANCELLED, ERR_PROTOCOL */
int worker_pause(struct worker *w, bool committed);

#endif
