/* Simulates a cluster, given as text, and the functions of its nodes once. */
#ifndef PL_LIB_SIM_CLUSTER_H
#define PL_LIB_SIM_CLUSTER_H

#include "job/cluster.h"
#include "sim/sim.h"
#include "wire/catalogue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct sim_outcome {
    int rc;
    int64_t end;
    uint64_t trace;
};

static inline uint32_t sim_cluster_kind(const char *name)
{
    return (uint32_t)wire_kind_find(name);
}

/* `options` without a cluster; `sent` gets the messages of each worker. */
static inline struct sim_outcome sim_cluster_run(const char *text, struct sim_options options,
                                                 int64_t limit, uint64_t *sent)
{
    struct err err = {0};
    Paceline__Cluster *cluster = NULL;
    struct sim *sim = NULL;
    int rc = cluster_parse("test", text, strlen(text), &cluster, &err);
    if (rc == OK)
        rc = cluster_finish(cluster, &err);
    options.cluster = cluster;
    options.kind_of = sim_cluster_kind;
    if (rc == OK)
        rc = sim_create(&options, &sim, &err);
    if (rc != OK)
        fail_msg("%s", err.text);
    struct sim_outcome outcome = {.rc = sim_run(sim, limit)};
    outcome.end = sim_now(sim);
    outcome.trace = sim_trace(sim);
    for (uint32_t node = 0; node < options.workers; node++)
        sent[node] = sim_sent(sim, node);
    sim_free(sim);
    cluster_free(cluster);
    return outcome;
}

#endif
