/* Steps whose time varies: a step of a node takes 1 ± jitter of its mean, drawn uniformly, as in
 * the simulator (sim/work.c). A round that waits for all takes the expected maximum over its
 * workers, and not the mean. The models play rounds, so the maximum follows from draws; these are a
 * function of the node and the step, so a prediction is always the same. Part of plan/round. */
#ifndef PL_PLAN_JITTER_H
#define PL_PLAN_JITTER_H

#include "plan/round.h"

/* So many rounds are played for a mean, if steps vary. */
enum { JITTER_ROUNDS = 64 };

bool jitter_is_on(const struct round_cluster *cluster);

/* Seconds of `count` steps of a node, the first of which is its step `from`. */
double jitter_steps(const struct round_cluster *cluster, size_t node, uint64_t from,
                    uint64_t count);

/* The expected time in which each of `lanes` has one turn, at least `tick` seconds after the lane
 * before it. At its turn a lane waits, `limit` seconds at most, until each worker has ended a step
 * since the lane's last turn. Workers wait for nothing, so most are in the middle of a step: the
 * time is the expected maximum of what is left of their steps, and less than the longest step. */
double jitter_cycle(const struct round_cluster *cluster, size_t lanes, double tick, double limit);

#endif
