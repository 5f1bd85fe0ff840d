/* Worker processes of this machine: children of the driver's process, each running `paceline
 * worker`. */
#ifndef PL_CLI_WORKERS_H
#define PL_CLI_WORKERS_H

#include "cli/worker_relay.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WORKERS_MAX = 1024 }; /* at a time */

struct workers {
    bool insecure;     /* passed on to each */
    const char *key;   /* of the run; each reads it from a pipe. NULL: none */
    const char *cache; /* folder of each one's file of records; NULL: the default */
    pid_t pid[WORKERS_MAX];
    uint32_t count, lost;
    struct worker_relay relay;
};

/* For pl_run_options.start_workers: start `count` processes that join the driver at `address`.
 * Returns 0 when all have been started, or -1 after a message. */
int workers_start(struct workers *workers, uint32_t count, const char *address);

/* For pl_run_options.workers_lost: how many of them have ended. */
uint32_t workers_lost(struct workers *workers);

/* Wait up to five seconds for those that are left, then kill them. */
void workers_end(struct workers *workers);

#endif
