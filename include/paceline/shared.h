/* Shared variables: all-reduces whose parts are tasks, not processes (Elastic, §4.2, Algorithm 2).
 *
 * A variable has a key, n floats, num_tasks tasks and a reduction. In each round every task hands
 * in one vector, on whatever member of the team it happens to run; when num_tasks different tasks
 * have done so, their vectors are reduced, and every member has the result, those without tasks
 * too. Then comes the next round: 0, 1, 2, …
 *
 *     pl_shared_init(team, "gradient", n, tasks, NULL, &g);
 *     pl_shared_submit(g, round, task, x);          in each task, on any member
 *     pl_shared_get(g, round, sum, -1);             wherever the result is wanted
 *
 * Engines run tasks again: because one is slow, because its machine is lost. A task that has handed
 * in its vector already is passed over, on this member or any other, and no task is ever counted
 * twice. A member that dies takes the vectors with it which it was to put into rounds that are not
 * done; these rounds wait until somebody hands the same tasks in again, or continue at once if
 * somebody has done so already. Everybody else's vectors are kept. A round is done on all members
 * or on none (the commit rule of exchanges): who was late when a member died takes the result from
 * those who have it, so there is nobody to be asked for a copy.
 *
 * Each member first reduces what its own tasks have handed in, in order of their numbers; then the
 * members' vectors are reduced, in an order that depends on ranks alone. All members end with the
 * same bits. All of it continues behind the caller: any number of variables, of which up to eight
 * are under way at once, and several rounds of each may be handed in at once. The rounds of one
 * variable are done in order.
 *
 * Costs. A round sends and receives what one all-reduce does (2(P − 1)/P of the bytes each way) and
 * a few hundred bytes for each task. A member keeps three vectors of a variable's n floats, and one
 * more where it has several tasks. Threads: one, and one for each of up to eight variables.
 *
 * Handles may be used by any number of threads at once, and live as long as their team. */
#ifndef PACELINE_SHARED_H
#define PACELINE_SHARED_H

#include "paceline/team.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_SHARED_TASKS_MAX 16384 /* of a variable */
#define PL_SHARED_KEY_MAX   63    /* characters */
#define PL_SHARED_VARS_MAX  256   /* of a team */
#define PL_SHARED_AHEAD     8     /* rounds open at once */
#define PL_SHARED_KEPT      2     /* results kept at least */

typedef struct pl_shared pl_shared;

typedef struct pl_shared_reduction {
    pl_reduce_op op; /* PL_MEAN: the sum, divided by num_tasks */
    /* PL_USER_OP: y ← y ∘ x over a range of the vector, of any length; associative, commutative,
     * and called from threads of the library, until the team is closed. */
    void (*fn)(void *user, float *y, const float *x, size_t n);
    void *user;
    float identity; /* PL_USER_OP: x ∘ identity = x; stands for members without tasks */
} pl_shared_reduction;

/* Make the variable of this key, or find it: on every member that has tasks of it or wants its
 * results, in any order, at any time. Called again it gives another handle on the same variable.
 * NULL reduction: the sum. With PL_USER_OP no round begins before every member has made the
 * variable, because vectors pass through all of them. Asks the coordinator and waits for its
 * answer. Messages are in pl_engine_error.
 *
 * PL_ERR_USAGE  n (1 … 1e9), num_tasks or the reduction is wrong, or was another one elsewhere; no
 *               key, or a long one; too many variables
 * PL_ERR_PEER   the team is over; PL_ERR_NOMEM */
int pl_shared_init(pl_team *team, const char *key, size_t n, uint32_t num_tasks,
                   const pl_shared_reduction *reduction, pl_shared **out);

/* Hand in x (n floats) as what `task` gives to `round`. Never waits and never looks at x: takes
 * microseconds, however long the vector. x is borrowed, and must not change, until pl_shared_poll
 * or pl_shared_get says that the round is done, here, or the team is closed. The first vector of a
 * task counts; others are passed over, as is what comes when the round is done. Numbers are taken
 * as they are, NaN included.
 *
 * PL_ERR_USAGE  no vector; task ≥ num_tasks; a round that is PL_SHARED_AHEAD or more beyond the
 *               first that is not done here
 * PL_ERR_PEER   the team is over; PL_ERR_NOMEM */
int pl_shared_submit(pl_shared *shared, uint64_t round, uint32_t task, const float *x);

/* Is the result of the round here? 1: yes. 0: not yet. PL_ERR_NOT_FOUND: it is no longer kept.
 * PL_ERR_PEER: the team is over, and the result will never come. Never waits. */
int pl_shared_poll(pl_shared *shared, uint64_t round);

/* Wait until the result of the round is here, at most timeout_s seconds (negative: for ever), and
 * copy it to `out` (n floats; NULL: only wait). Any number of callers may, any number of times,
 * while it is kept.
 *
 * PL_ERR_TIMEOUT    it is not here yet
 * PL_ERR_NOT_FOUND  it is no longer kept: two newer rounds are done and another is under way
 * PL_ERR_PEER       the team is over */
int pl_shared_get(pl_shared *shared, uint64_t round, float *out, double timeout_s);

/* Message of the last call on this handle that failed, cut to `size` characters with the zero. */
void pl_shared_error(pl_shared *shared, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
