/* The machines of a run, out of the events `start` and `member`: which nodes are on each. */
#ifndef PL_CLI_RUN_HOSTS_H
#define PL_CLI_RUN_HOSTS_H

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

enum { RUN_NODES_MAX = 4096, RUN_HOSTS_MAX = 1024, RUN_HOST_TEXT_MAX = 64 };

/* "" and 0: unknown. */
struct run_host {
    char name[RUN_HOST_TEXT_MAX], cpu[RUN_HOST_TEXT_MAX];
    double cores, memory;
};

struct run_hosts {
    struct run_host host[RUN_HOSTS_MAX];
    uint32_t count;
    uint32_t
        of[RUN_NODES_MAX + 1]; /* node n at n + 1, the driver at 0: its host, from 1; 0: none */
};

/* The newest event of a node that names its machine counts. node: -1: the driver. Events may be of
 * anybody: texts are cut and numbers checked; machines above RUN_HOSTS_MAX are left out. */
void run_hosts_take(struct run_hosts *hosts, int node, const cJSON *event);

/* The key "hosts" with an array of [host, processor, cores, memory, [nodes]]; what is unknown is
 * null, and a machine that has no node any more is left out. */
void run_hosts_put(FILE *out, const struct run_hosts *hosts);

#endif
