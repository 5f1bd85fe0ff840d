/* `paceline data pack`: all records into shards. */
#ifndef PL_CLI_DATA_PACK_H
#define PL_CLI_DATA_PACK_H

#include "paceline/data.h"

struct data_pack_options {
    const char *prefix;
    uint64_t shard_bytes; /* 0: as the library chooses */
    bool training, force, json;
};

/* Prints the SPEC of the shards. Returns the command's exit code: EXIT_INTERRUPTED after Ctrl-C,
 * and then no shard is left. */
int data_pack(pl_engine *engine, const char *spec, const struct data_pack_options *options);

#endif
