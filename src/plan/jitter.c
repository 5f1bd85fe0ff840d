#include "plan/jitter.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "base/rng.h"
#include "plan/round_internal.h"

bool jitter_is_on(const struct round_cluster *cluster)
{
    for (size_t i = 1; cluster->jitter && i <= cluster->workers; i++)
        if (cluster->jitter[i] > 0)
            return true;
    return false;
}

double jitter_steps(const struct round_cluster *cluster, size_t node, uint64_t from, uint64_t count)
{
    double jitter = cluster->jitter ? cluster->jitter[node] : 0, sum = 0;
    if (!(jitter > 0))
        return (double)count * cluster->step[node];
    for (uint64_t k = 0; k < count; k++)
        sum += 1 + jitter * (2 * (double)rng_uniform(node, RNG_SIM, from + k) - 1);
    return sum * cluster->step[node];
}

/* The latest of all workers' first step ends after `t`, which only grows from call to call. */
static double await_ends(const struct round_cluster *cluster, double t, double *end,
                         uint64_t *steps)
{
    double last = 0;
    for (size_t i = 0; i < cluster->workers; i++) {
        while (end[i] <= t)
            end[i] += jitter_steps(cluster, i + 1, steps[i]++, 1);
        last = max_double(last, end[i]);
    }
    return last;
}

double jitter_cycle(const struct round_cluster *cluster, size_t lanes, double tick, double limit)
{
    enum { FILLING = 4, CYCLES = 4 * JITTER_ROUNDS };
    double end[ROUND_RANKS_MAX] = {0}, turn[ROUND_VECTORS_MAX] = {0}, now = 0, begin = 0;
    uint64_t steps[ROUND_RANKS_MAX] = {0};
    PL_ASSERT(lanes > 0 && lanes <= ROUND_VECTORS_MAX && cluster->workers <= ROUND_RANKS_MAX);
    for (uint64_t k = 0; k < (FILLING + CYCLES) * lanes; k++) {
        double next = k > 0 ? now + tick : 0;
        double filled = await_ends(cluster, turn[k % lanes], end, steps);
        begin = k == FILLING * lanes ? now : begin;
        now = max_double(next, min_double(filled, next + limit));
        turn[k % lanes] = now;
    }
    return (now - begin) / CYCLES;
}
