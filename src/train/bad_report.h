/* Broken records that workers leave out (on_bad_record: skip) are reported to the driver, which
 * counts those of all, each once, and keeps them to the job's limit. */
#ifndef PL_TRAIN_BAD_REPORT_H
#define PL_TRAIN_BAD_REPORT_H

#include "train/driver.h"
#include "train/worker.h"

/* Send the driver the records that were found since the last call. ERR_DRIVER, ERR_NOMEM,
 * ERR_CANCELLED */
int worker_report_bad_records(struct worker *w);

/* Count a record that a worker has reported; `m` is borrowed. ERR_INPUT: there are too many, with
 * the message in d->err. */
int driver_on_bad_record(struct driver *d, const struct message *m);

/* Log those that are new, at most one a second, and write an event for each. */
void driver_report_bad_records(struct driver *d);

/* The run is over: read the remaining reports, and put the number and the first names into the
 * run's report. */
void driver_sum_bad_records(struct driver *d, struct train_report *report);

#endif
