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

#endif
