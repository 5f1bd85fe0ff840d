/* The time of an all-reduce from a timeline of all its pieces: each rank begins them as coll_run
 * does, and links carry them as in a simulation, one after another between two ranks, and with
 * max-min fair rates where several ranks share a link. It sees what cost_predict does not:
 * pieces of several rounds that share a link. Comparisons and + - * / alone. */
#ifndef PL_COLL_COST_TIMELINE_H
#define PL_COLL_COST_TIMELINE_H

#include "coll/cost.h"

enum { COST_TIMELINE_RANKS_MAX = 64 };

/* Seconds for n floats in pieces of `chunk`, on at most COST_TIMELINE_RANKS_MAX ranks that all
 * begin at once. The work of ranks is not counted: links->per_message is 0 and reduce_rate
 * INFINITY. Costs the number of pieces of all ranks, times that of pieces under way. INFINITY
 * when there is no memory. */
double cost_timeline(enum coll_algorithm algorithm, const struct cost_links *links, size_t n,
                     size_t chunk, const size_t *cut);

/* The same for several collectives, which ranks enter one by one. */
struct timeline;
struct cost_tasks {
    size_t count, chunk; /* tasks; floats of a piece */
    size_t ahead;        /* tasks that ranks may be in beyond the first that is not over; 0: 16 */
    /* The schedule of a rank in a task. OK, ERR_NOMEM */
    int (*schedule)(void *user, struct schedule *out, size_t task, size_t ranks, size_t me);
    /* (optional) The time from which on the rank may be in the task; INFINITY: not yet known. */
    double (*begin)(void *user, const struct timeline *t, size_t task, size_t rank);
    void *user;
};

/* The time at which the rank has entered the task, or has done its part in it; INFINITY: not yet.
 * For `begin`. */
double cost_task_begin(const struct timeline *t, size_t task, size_t rank);
double cost_task_end(const struct timeline *t, size_t task, size_t rank);

/* `end` gets the time at which the last rank has ended each task. ERR_NOMEM */
int cost_timeline_tasks(const struct cost_tasks *tasks, const struct cost_links *links,
                        double *end);

/* Split exchanges of one shard after another, in stages (stages.h, split.h). */
struct cost_pipeline {
    const size_t *n; /* floats of each shard */
    size_t shards;
    size_t chunk;  /* floats of a piece, */
    size_t meta;   /* and of the metadata */
    bool at_root;  /* rank 0 prepares the result; else each rank a part */
    size_t phases; /* 1 to 3 */
};

/* Seconds in which each shard is exchanged once, after some in which the pipeline fills. INFINITY:
 * out of memory */
double cost_pipeline_cycle(const struct cost_pipeline *p, const struct cost_links *links);

#endif
