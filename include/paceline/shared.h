/* Shared variables: all-reduces whose parts are tasks, not processes (Elastic, §4.2, Algorithm 2).
 *
 * A variable has a key, n floats, num_tasks tasks and a reduction. In each round every task submits
 * one vector, on the member of the team on which it runs. When num_tasks different tasks have done
 * so, their vectors are reduced, and every member gets the result, also members without tasks.
 * Rounds are numbered 0, 1, 2, …
 *
 *     pl_shared_init(team, "gradient", n, tasks, NULL, &g);
 *     pl_shared_submit(g, round, task, x);          in each task, on any member
 *     pl_shared_get(g, round, sum, -1);             wherever the result is wanted
 *
 * Engines run tasks again, because one is slow or its machine is lost. A second vector of the same
 * task is ignored, on this member or any other, and no task is ever counted twice. If a member
 * dies, its vectors for unfinished rounds are lost. These rounds wait until another member submits
 * the same tasks, or continue at once if one has done so already. The vectors of all other members
 * are kept. A round is done on all members or on none (the commit rule of exchanges): a member that
 * was late when another one died takes the result from those that have it.
 *
 * Members join and leave between rounds: the rounds that are being reduced end first, with the
 * members that they began with, and none is repeated. A member that joined later gets handles as
 * all do, and takes part from pl_shared_round on; it has no earlier result.
 *
 * Each member first reduces the vectors of its own tasks, in the order of their numbers; then the
 * members' vectors are reduced, in an order that depends on ranks alone. All members end with the
 * same bits. All this happens in the background: up to eight of any number of variables are under
 * way at once, and several rounds of each may be submitted at once. The rounds of one variable are
 * done in order.
 *
 * Costs. A round sends and receives as much as one all-reduce (2(P − 1)/P of the bytes each way)
 * and a few hundred bytes for each task. A member keeps three vectors of a variable's n floats, and
 * one more where it has several tasks. Threads: one, and one for each of up to eight variables.
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
    size_t size;     /* sizeof this struct */
    pl_reduce_op op; /* PL_MEAN: the sum, divided by num_tasks */
    /* PL_USER_OP: y ← y ∘ x over a range of the vector, of any length; associative, commutative,
     * and called from threads of the library, until the team is closed. */
    void (*fn)(void *user, float *y, const float *x, size_t n);
    void *user;
    float identity; /* PL_USER_OP: x ∘ identity = x; stands for members without tasks */
} pl_shared_reduction;

/* Make the variable of this key, or find it: on every member that has tasks of it or wants its
 * results, in any order, at any time. A second call gives another handle on the same variable.
 * NULL reduction: the sum. With PL_USER_OP no round begins before every member has made the
 * variable, because vectors pass through all of them; this holds for later members, too. Asks the
 * coordinator and waits for its answer. Messages are in pl_engine_error.
 *
 * PL_ERR_USAGE  n (1 … 1e9), num_tasks or the reduction is wrong, or was another one elsewhere; no
 *               key, or a long one; too many variables
 * PL_ERR_PEER   the team is over; PL_ERR_NOMEM */
int pl_shared_init(pl_team *team, const char *key, size_t n, uint32_t num_tasks,
                   const pl_shared_reduction *reduction, pl_shared **out);

/* Submit x (n floats) as the vector of `task` for `round`. Never waits and does not read x: takes
 * microseconds, whatever the length of the vector. x is borrowed, and must not change, until
 * pl_shared_poll or pl_shared_get reports on this member that the round is done, or the team is
 * closed. The first vector of a task counts; later ones are ignored, and so are vectors for a
 * finished round. All values are accepted, NaN included.
 *
 * PL_ERR_USAGE  no vector; task ≥ num_tasks; a round that is PL_SHARED_AHEAD or more beyond this
 *               member's first unfinished one
 * PL_ERR_PEER   the team is over; PL_ERR_NOMEM */
int pl_shared_submit(pl_shared *shared, uint64_t round, uint32_t task, const float *x);

/* The first round that is not done on this member. For a member that joined later, the first in
 * which it takes part, where it has not ended meanwhile. */
uint64_t pl_shared_round(const pl_shared *shared);

/* Is the result of the round here? 1: yes. 0: not yet. PL_ERR_NOT_FOUND: it is no longer kept.
 * PL_ERR_PEER: the team is over, without this result. Never waits. */
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
