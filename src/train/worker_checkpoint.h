/* A checkpoint that a worker writes in place of its driver, which is lost: the run then resumes
 * from this worker's newest commit point instead of the driver's last checkpoint. It needs the run
 * directory (train_host.run_folder), on storage that the next driver sees, too.
 *
 * Only synchronous strategies have it, whose progress holds the counts: elsewhere the lease table
 * is lost with the driver. Counts of local_data are those of the driver's last checkpoint. */
#ifndef PL_TRAIN_WORKER_CHECKPOINT_H
#define PL_TRAIN_WORKER_CHECKPOINT_H

#include "train/worker.h"

/* Write it, unless there is a driver, the directory has a checkpoint as far, a later driver has the
 * run, or the model has changed since the commit point. Of the members that end together, the first
 * one writes. A failure is logged, and harms no file that
 * is there. Takes a copy of the model and the time of writing it. */
void worker_save_checkpoint(struct worker *w);

#endif
