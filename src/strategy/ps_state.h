/* The whole state of a parameter server on the driver, as one vector:
 *
 *     x̃, s̃ | the optimizer's vectors | for each worker, the number of its newest decided push
 *
 * A worker that fetches such a vector keeps it, and keeps its own later pushes (ps_client.h). A
 * driver that restarts fetches the newest one, and each worker sends again the pushes that it does
 * not contain: so the model, the optimizer and the clock continue as if those pushes had only
 * now arrived. The header of the transfer has the scalars:
 *
 *     version   orders that are carried out
 *     samples   their sample offset
 *     t         the rate's clock
 *     number    updates behind the optimizer's vectors
 *     node      how many workers' numbers follow, from worker 0 on
 *
 * Costs: the vectors of the optimizer once more in every copy, two floats for each worker id. */
#ifndef PL_STRATEGY_PS_STATE_H
#define PL_STRATEGY_PS_STATE_H

#include "strategy/ps_message.h"
#include "strategy/shard.h"

/* Floats of x̃ and s̃, and of all vectors of the optimizer. */
struct ps_state_layout {
    size_t model, optimizer;
};

/* Floats of a state with the numbers of `workers`, at most VIEW_MEMBERS_MAX. */
size_t ps_state_length(const struct ps_state_layout *layout, size_t workers);

/* The part with x̃, s̃ and the optimizer's vectors, out of or into the server's; `at` has
 * ps_state_length(…, 0) floats. */
void ps_state_export(const struct ps_state_layout *layout, const struct shard *shard, float *at);
void ps_state_import(const struct ps_state_layout *layout, struct shard *shard, const float *at);

/* A worker's number in a state. */
void ps_state_put_push(const struct ps_state_layout *layout, float *at, size_t worker,
                       uint64_t number);
uint64_t ps_state_push(const struct ps_state_layout *layout, const float *at, size_t worker);

#endif
