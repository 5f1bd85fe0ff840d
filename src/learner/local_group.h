/* The learners inside one (`local: n` in the job), for nodes whose cores are better used by several
 * nets than by one; SparkNet's and DSSP's have four GPUs each. The job's batch stays the worker's,
 * so that places, exchange metadata and evaluations are as without a group: it is cut into n parts,
 * one after another, of b_i = batch / n records. Each has a net, a gradient and a state of its own,
 * and the step's gradient is
 *
 *     g = Σ b_i g_i / Σ b_i ,
 *
 * summed pairwise, as a tree sums its ranks (tensor/slices.h). With plain C kernels, n a power of
 * two and b_i SLICE_RECORDS times one, it has the bits of one net's with the whole batch. Each
 * learner's change of the state is averaged like it. To a caller that wants a gradient the group is
 * one learner.
 *
 * Once started, all n work at the same time: the first on the caller's task, each of the others on
 * one of the world's, handed its turn by a signal. Until then they take turns on the caller's. */
#ifndef PL_LEARNER_LOCAL_GROUP_H
#define PL_LEARNER_LOCAL_GROUP_H

#include "learner/workspace.h"
#include "world/world.h"

/* Of the world's signals, the group's; a world has at most one group that is started. */
enum local_signal { SIGNAL_LOCAL_TURN = 30, SIGNAL_LOCAL_DONE = 31 };

struct local_group;

/* The group of a workspace (borrowed), in memory of `arena`. ERR_NOMEM */
int local_create(struct workspace *ws, struct arena *arena, struct local_group **out);

/* Work at the same time from now on, on tasks of `world`, whose task calls all functions of the
 * group. Each computes with `threads` threads; 0: where work costs time they only let that pass,
 * and the arithmetic stays on the caller's task, at one moment: others may share the workspace.
 * ERR_NOMEM, ERR_CANCELLED; local_stop is then still to be called. */
int local_start(struct local_group *group, struct world *world, int threads);

/* End the tasks, and wait for their end. Nothing if not started. Arena and workspace may be given
 * back after it and not before. */
void local_stop(struct local_group *group);

/* Compute with that net (borrowed) from now on, whose parameters are those of the one before. For a
 * group of one learner. */
void local_set_net(struct local_group *group, struct net *net);

/* Let the time pass that `count` records take which cost `seconds` of one core: each learner's
 * share is a piece of work of its own. ERR_CANCELLED: others may still be at work, and the group is
 * there only to be stopped; so it is below. */
int local_work(struct local_group *group, struct world *world, size_t count, double seconds);

/* dx ← gradient of the mean loss over the batch, at most the job's, which stays as it is until the
 * next call; s as the net leaves it. `watch` (may be NULL) is told on the caller's task; of several
 * learners once, at the end. Nothing is allocated. ERR_CANCELLED, or what `watch` returns */
int local_gradient(struct local_group *group, const struct vec *x, struct vec *s, struct vec *dx,
                   const struct net_batch *batch, const struct net_watch *watch,
                   struct net_result *result);

#endif
