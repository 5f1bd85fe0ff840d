/* How a run ends before its time, and how it ends. Of the driver's main task. */
#ifndef PL_TRAIN_DRIVER_STOP_H
#define PL_TRAIN_DRIVER_STOP_H

#include "train/driver.h"

/* A member has committed: how long that takes is what a stop at a commit point is judged by. */
void driver_record_commit(struct driver *d, const struct progress *progress);

/* Tells the members that the run is to end, and joiners after that: once a view. Reports to the
 * caller how soon the run can stop. */
void driver_check_stop(struct driver *d, const struct view *view);

/* Is the run to stop at once? And do so: the newest model that the driver has, or can get from a
 * worker within two seconds, is kept. OK, ERR_CANCELLED */
bool driver_stops_now(const struct driver *d);
int driver_stop_now(struct driver *d);

/* The same before training continues. ERR_STOP, with its message: it is to stop */
int driver_check_early_stop(struct driver *d);

/* A run that fails with `rc` keeps the newest model that the driver has, unless something is wrong
 * with that or with this driver. */
void driver_keep_state(struct driver *d, int rc);

/* Workers are let go, and the model writer is waited for. Returns the error that ended it. */
int driver_await_model(struct driver *d);

/* The run has its final model: is that its end? ERR_PEER: no, others continue with it. */
int driver_check_deserted(struct driver *d);

/* The tasks end one after another; what made the run fail first is what is told. */
int driver_close(struct driver *d, int rc, struct train_report *report);

/* driver.c: a background task the main one has ended; all members' loops have. */
int driver_on_task_end(struct driver *d, struct task **task, const char *what);
bool driver_all_done(const struct driver *d, const struct view *view);
/* driver_end.c: has everybody who can be reached been told? */
bool driver_send_to_all(struct driver *d, enum wire_kind kind, const struct buf *bytes);

#endif
