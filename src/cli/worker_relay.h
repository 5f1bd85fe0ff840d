/* Local workers print through a pipe to the process that started them, which alone prints: on a
 * terminal lines of others would run into its progress line. */
#ifndef PL_CLI_WORKER_RELAY_H
#define PL_CLI_WORKER_RELAY_H

#include <pthread.h>
#include <stdbool.h>

struct worker_relay {
    bool open;
    int ends[2]; /* read, write; closed when a process becomes another program */
    pthread_t reader;
};

/* Begin to print the workers' output; without it workers use the stderr of this process. Does
 * nothing when it is open. */
void worker_relay_open(struct worker_relay *relay);

/* All workers have ended: print the rest. */
void worker_relay_close(struct worker_relay *relay);

#endif
