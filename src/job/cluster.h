/* Cluster files: the machines of a simulation or a plan, from protobuf text. Opens nothing. */
#ifndef PL_JOB_CLUSTER_H
#define PL_JOB_CLUSTER_H

#include "base/err.h"
#include "job/cluster.pb-c.h"

#include <stddef.h>
#include <stdint.h>

enum { CLUSTER_NODES_MAX = 1024, CLUSTER_DRIVER = -1 };

/* Parse a cluster file. ERR_INPUT with file:line:column. */
int cluster_parse(const char *name, const char *text, size_t len, Paceline__Cluster **out,
                  struct err *err);
void cluster_free(Paceline__Cluster *cluster);

/* Check every number and every node that is named; make `driver` and `link` when they were left
 * out. Node entries keep their counts.
 *
 * ERR_INPUT        naming the field
 * ERR_UNSUPPORTED  a fault that kills the driver */
int cluster_finish(Paceline__Cluster *cluster, struct err *err);

/* Nodes of a finished cluster, without the driver. */
uint32_t cluster_nodes(const Paceline__Cluster *cluster);

/* The entry that describes node `i`, i < cluster_nodes. */
const Paceline__Node *cluster_node(const Paceline__Cluster *cluster, uint32_t i);

#endif
