/* Commands that run as several ranks: started by somebody else, one a process, with PACELINE_RANK,
 * PACELINE_RANKS and PACELINE_RENDEZVOUS in the environment (mpirun and srun wrappers and
 * bench/netns.sh do so); or on this machine, as children of one command. */
#ifndef PL_CLI_RANKS_H
#define PL_CLI_RANKS_H

#include "paceline/team.h"

#include <stdbool.h>

/* Where a process stands among the ranks. */
struct ranks_place {
    bool given; /* by the environment; else the command starts `count` children */
    uint32_t rank, count;
    char rendezvous[64];
    char listen[64]; /* this rank's own address, port 0 */
    bool insecure, no_shm, ucx;
    uint32_t stripes; /* connections to each peer; 0: as many as the library opens */
};

/* Read the environment. `count` is the command's own wish, 0 for none, which must not contradict.
 * false after a message. */
bool ranks_find(const char *command, uint32_t count, struct ranks_place *place);

/* Run `fn` in one child process a rank on this machine, wait for all, and return the first exit
 * code that is not 0. Before any thread has been started. */
int ranks_start(const struct ranks_place *place, int (*fn)(const struct ranks_place *, void *),
                void *arg);

/* This rank's team. */
int ranks_open(pl_engine *engine, const struct ranks_place *place, pl_team **team);

#endif
