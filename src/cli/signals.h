/* Signals to the commands that run for long. A signal that was ignored when the command began (by
 * nohup, or of a job in the background of a script) stays ignored; a closed pipe is an error of the
 * write. */
#ifndef PL_CLI_SIGNALS_H
#define PL_CLI_SIGNALS_H

#include "paceline/flag.h"

/* For pl_run_options.stop, once signals_catch_run has been called: 1 after SIGINT, SIGTERM or
 * SIGHUP, 2 after another SIGINT or SIGTERM; one more ends the process. Signals that arrive
 * together count as one. */
extern pl_flag signals_stop;
void signals_catch_run(void);

/* Set by the command while a run or worker reads the flags: the run is open, or the worker is in
 * one. It selects the message that a signal prints. */
extern pl_flag signals_heeded;

/* For pl_work_options, once signals_catch_worker has been called: SIGINT, SIGTERM and SIGHUP set
 * `leave`, and another ends the process; SIGUSR1 sets `pause`, SIGUSR2 takes it back. */
extern pl_flag signals_leave, signals_pause;
void signals_catch_worker(void);

#endif
