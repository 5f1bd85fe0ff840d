/* Files that workers write in place of their driver, which is lost: the run then resumes from their
 * newest commit point instead of the driver's last checkpoint. It needs the run directory
 * (train_host.run_folder), on storage that the next driver sees, too.
 *
 * Synchronous strategies: a checkpoint, since the progress holds the counts. Asynchronous ones: the
 * ledger and the lease table are lost with the driver. Each worker writes its recovery report, and
 * one of them its model (last_report.h). Counts of local_data are those of the driver's last
 * checkpoint. */
#ifndef PL_TRAIN_WORKER_CHECKPOINT_H
#define PL_TRAIN_WORKER_CHECKPOINT_H

#include "train/worker.h"

/* Write it, unless there is a driver, a later driver has the run, the directory has a checkpoint as
 * far, or the model has changed since the commit point. Of the members of a synchronous strategy
 * that end together, the first one writes. A failure is logged, and harms no file that is there.
 * Takes a copy of the model and the time of writing it. */
void worker_save_checkpoint(struct worker *w);

#endif
