/* Simulating a job: the same job, the same code, on virtual machines. The arithmetic is real; time,
 * the network and its faults are modelled by a cluster file (proto/cluster.proto lists its fields).
 * The same seed gives the same run, byte by byte. */
#ifndef PACELINE_SIM_H
#define PACELINE_SIM_H

#include "paceline/run.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_cluster pl_cluster;

/* Read a cluster file (protobuf text). PL_ERR_INPUT with file:line:column. */
int pl_cluster_load(pl_engine *engine, const char *path, pl_cluster **out);
void pl_cluster_free(pl_cluster *cluster);

/* The text of the file, or of what pl_survey has measured; valid as long as the cluster. */
const char *pl_cluster_text(const pl_cluster *cluster);

typedef struct pl_sim_options {
    size_t size;               /* sizeof this struct */
    const pl_run_options *run; /* its events have virtual times; NULL: the defaults */
    double limit_s;            /* virtual seconds after which the run is given up; 0: a year */
    /* Simulated tasks run on fibres (false), or on threads of which one runs at a time (true), for
     * debuggers and race detectors. The run is the same; callbacks come from those threads. */
    bool threads;
    /* Keep nothing: there is no run directory, and the report's `directory` and `model` are "". The
     * options out, resume, snapshot and trace must not be set then. PL_ERR_UNSUPPORTED where the
     * cluster file lets the driver die, which returns from its files. */
    bool no_files;
    /* Evaluate on this number of records of each set at most, from the first; 0: as the job sets
     * it. */
    uint32_t evaluate_records;
} pl_sim_options;

/* Simulate; returns when the run has ended. The report's wall_s is virtual.
 * As pl_run; PL_ERR_USAGE naming an option that contradicts no_files; and PL_ERR_TIMEOUT when the
 * run stood still or passed the limit. */
int pl_sim(pl_engine *engine, const pl_job *job, const pl_cluster *cluster,
           const pl_sim_options *options, pl_run_report *report);

#ifdef __cplusplus
}
#endif
#endif
