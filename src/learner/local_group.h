/* The learners of one worker (`local: n` in the job), for nodes on which several nets use the cores
 * better than one; SparkNet's and DSSP's nodes have four GPUs each. The job's batch is the
 * worker's, so that sample offsets, exchange metadata and evaluations do not depend on the group.
 * It is cut into n successive parts of b_i = batch / n records, rounded up. Each has a net, a
 * gradient and a state of its own, and the step's gradient is
 *
 *     g = Σ b_i g_i / Σ b_i ,
 *
 * summed pairwise, in the order of a binomial tree (tensor/slices.h). With plain C kernels, n a
 * power of two and b_i SLICE_RECORDS times one, it has the bits of one net's with the whole batch.
 * The learners' changes of the state are averaged in the same way. A caller that asks for a
 * gradient sees one learner.
 *
 * Once started, all n compute at the same time: the first on the caller's task, each of the others
 * on a task of the world, which a signal starts. Before that they compute in turns on the caller's
 * task. */
#ifndef PL_LEARNER_LOCAL_GROUP_H
#define PL_LEARNER_LOCAL_GROUP_H

#include "learner/workspace.h"
#include "world/world.h"

/* Of the world's signals, the group's; a world has at most one group that is started. */
enum local_signal { SIGNAL_LOCAL_TURN = 30, SIGNAL_LOCAL_DONE = 31 };

struct local_group;

/* The group of a workspace (borrowed), in memory of `arena`. ERR_NOMEM */
int local_create(struct workspace *ws, struct arena *arena, struct local_group **out);

/* Work at the same time from now on, on tasks of `world`, one of which calls all functions of the
 * group. Each computes with `threads` threads. 0, for a simulation: the tasks only let the cost's
 * time pass, and the caller's task does all arithmetic at one moment, since other learners may
 * share the workspace. ERR_NOMEM, ERR_CANCELLED; local_stop is then still to be called. */
int local_start(struct local_group *group, struct world *world, int threads);

/* End the tasks, and wait for their end. Nothing if not started. Arena and workspace may be given
 * back after it and not before. */
void local_stop(struct local_group *group);

/* Compute with that net (borrowed) from now on, whose parameters are those of the one before. For a
 * group of one learner. */
void local_set_net(struct local_group *group, struct net *net);

/* Call `meet` (on the caller's task) wherever a pass stops for the exchange with other slices of
 * the model (nn/net.h); its error ends the gradient. For a group of one learner, whose net is a
 * slice. */
void local_set_meeting(struct local_group *group,
                       int (*meet)(void *user, const struct net_point *point), void *user);

/* Let the time of `count` records pass, which cost `seconds` of one core: each learner's share is
 * one unit of work. ERR_CANCELLED: other learners may still work, and the group can only be
 * stopped; the same holds below. */
int local_work(struct local_group *group, struct world *world, size_t count, double seconds);

/* dx ← gradient of the mean loss over the batch, at most the job's, which must not change until the
 * next call; s as the net sets it. `watch` (may be NULL) is called on the caller's task; for
 * several learners once, at the end. Nothing is allocated. ERR_CANCELLED, or what `watch` or the
 * meeting returns */
int local_gradient(struct local_group *group, const struct vec *x, struct vec *s, struct vec *dx,
                   const struct net_batch *batch, const struct net_watch *watch,
                   struct net_result *result);

#endif
