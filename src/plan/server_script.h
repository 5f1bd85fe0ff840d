/* A round of a worker of parameter servers, as a script of what it does and waits for:
 *
 *     easgd     τ steps; until the last push is decided; copy; push, which is not waited for
 *     ps        a step; push; until the consistency lets it continue; copy
 *     downpour  n_push steps and a push, n_fetch steps and a copy; a push waits for the last one
 *
 * and the pace at which it repeats it. Part of plan/round. */
#ifndef PL_PLAN_SERVER_SCRIPT_H
#define PL_PLAN_SERVER_SCRIPT_H

#include "plan/round.h"

enum { SCRIPT_ACTIONS_MAX = 512 };

enum action_kind { COMPUTE, AWAIT_PUSH, PUSH, AWAIT_OK, COPY };

struct action {
    enum action_kind kind;
    uint64_t steps; /* COMPUTE */
};

struct script {
    struct action at[SCRIPT_ACTIONS_MAX];
    size_t count;
};

void server_script_write(struct script *s, const struct round_config *config);

/* A round of a worker ends: the time, and what it has done and carried until then. */
struct pace_mark {
    uint64_t rounds;
    double at, sent, received; /* s, bytes */
};

/* Rounds count between two that have a state. A state is longer than other copies and comes once in
 * several rounds, so any other number of rounds would have too many states or too few. */
struct pace_count {
    struct pace_mark first, last; /* first.rounds 0: none counts yet */
};

/* The first `filling` rounds do not count. */
static inline void pace_count_round(struct pace_count *c, uint64_t filling, bool has_state,
                                    const struct pace_mark *now)
{
    if (now->rounds < filling || !has_state)
        return;
    if (c->first.rounds == 0)
        c->first = *now;
    c->last = *now;
}

static inline uint64_t pace_counted(const struct pace_count *c)
{
    return c->last.rounds - c->first.rounds;
}

static inline double pace_of(const struct pace_count *c)
{
    return (double)pace_counted(c) / (c->last.at - c->first.at);
}

/* Bytes of a push, or of a copy that is no state, for x and s floats of the model; */
double server_vector_bytes(const struct round_config *config, size_t x, size_t s);

/* and of a state: the optimizer's vectors and a number for each worker besides. */
double server_state_bytes(const struct round_config *config, size_t x, size_t s, size_t workers);

/* Is the next copy of a worker a state, after `copies` of them and with so many pushes that no
 * state contains? */
bool server_copy_is_whole(const struct round_config *config, uint64_t copies, uint64_t uncontained);

#endif
