/* Commands that run as several ranks: one a process, on one host or several, each with its rank
 * from --rank, --ranks and --rendezvous, or by PACELINE_RANK, PACELINE_RANKS,
 * PACELINE_RENDEZVOUS and PACELINE_KEY_FILE in the environment (mpirun and srun wrappers and
 * bench/netns.sh do so); or on
 * this machine, as children of one command. */
#ifndef PL_CLI_RANKS_H
#define PL_CLI_RANKS_H

#include "cli/cli.h"
#include "cli/key_option.h"
#include "paceline/team.h"

#include <stdbool.h>

/* Where a process stands among the ranks. */
struct ranks_place {
    bool given; /* by options or the environment; else the command starts `count` children */
    uint32_t rank, count;
    char rendezvous[64];
    char listen[64]; /* this rank's own address, port 0 */
    bool insecure, no_shm, ucx;
    const char *key;  /* NULL: none was given */
    uint32_t stripes; /* connections to each peer; 0: as many as the library opens */
};

/* The options as text; NULL: not given. */
struct ranks_options {
    const char *rank, *ranks, *rendezvous, *address, *key_file;
    bool insecure;
};

/* Rows for a table of options; `type` has a member `place` of struct ranks_options. */
#define RANKS_OPTION(type, name, kind, value, help, field)   \
    {                                                        \
        name, kind, value, help, offsetof(type, place.field) \
    }
#define RANKS_OPTIONS(type)                                                                     \
    RANKS_OPTION(type, "rank", OPTION_TEXT, "R", "between hosts: which this one is, from 0 on", \
                 rank),                                                                         \
        RANKS_OPTION(type, "rendezvous", OPTION_TEXT, "HOST[:PORT]",                            \
                     "between hosts: where rank 0 is reached (port 29500)", rendezvous),        \
        RANKS_OPTION(type, "address", OPTION_TEXT, "HOST",                                      \
                     "between hosts: this one's own (as it reaches the rendezvous)", address),  \
        RANKS_OPTION(type, "key", OPTION_TEXT, "FILE",                                          \
                     "between hosts: file with the key of all ranks, of `paceline keygen`",     \
                     key_file),                                                                 \
        RANKS_OPTION(type, "insecure", OPTION_FLAG, NULL, INSECURE_HELP, insecure)

/* Read the options, or else the environment. `count` is the number of ranks that the command sets;
 * 0: none. false after a message. */
bool ranks_find(const char *command, const struct ranks_options *options, uint32_t count,
                struct ranks_place *place);

/* Run `fn` in one child process a rank on this machine, wait for all, and return the first exit
 * code that is not 0. Before any thread has been started. */
int ranks_start(const struct ranks_place *place, int (*fn)(const struct ranks_place *, void *),
                void *arg);

/* This rank's team. */
int ranks_open(pl_engine *engine, const struct ranks_place *place, pl_team **team);

#endif
