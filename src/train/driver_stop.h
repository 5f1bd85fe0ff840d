/* Early and regular ends of a run. All functions are the driver's main task's. */
#ifndef PL_TRAIN_DRIVER_STOP_H
#define PL_TRAIN_DRIVER_STOP_H

#include "train/driver.h"

/* Record a commit: the time between commits predicts how soon a stop can take effect. */
void driver_record_commit(struct driver *d, const struct progress *progress);

/* Send `stop` to the members once a view, so that later joiners receive it, too. Report to the
 * caller how soon the run can stop. */
void driver_check_stop(struct driver *d, const struct view *view);

/* driver_stops_now: has the user asked for a stop at once? driver_stop_now does it: it keeps the
 * newest model that the driver has, or gets from a worker within two seconds. OK, ERR_CANCELLED */
bool driver_stops_now(const struct driver *d);
int driver_stop_now(struct driver *d);

/* The same before training begins. ERR_STOP with its message: a stop was requested. */
int driver_check_early_stop(struct driver *d);

/* Request a worker's model, and wait two seconds for it. The errors of driver_turn */
int driver_fetch_model(struct driver *d);

/* A run that fails with `rc` keeps the driver's newest model, unless that model or this driver is
 * at fault. */
void driver_keep_state(struct driver *d, int rc);

/* Release the workers and wait for the model writer. Returns its error. */
int driver_await_model(struct driver *d);

/* The run has its final model. ERR_PEER: all workers were asked to leave, so the run can be
 * resumed. */
int driver_check_deserted(struct driver *d);

/* End the tasks one after another. The first error is the run's error. */
int driver_close(struct driver *d, int rc, struct train_report *report);

/* In driver.c: a background task has ended; have all members' loops ended? */
int driver_on_task_end(struct driver *d, struct task **task, const char *what);
bool driver_all_done(const struct driver *d, const struct view *view);
/* In driver_end.c: send to all members. true: every member that can be reached has the message. */
bool driver_send_to_all(struct driver *d, enum wire_kind kind, const struct buf *bytes);

#endif
