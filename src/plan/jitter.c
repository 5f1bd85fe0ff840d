#include "plan/jitter.h"

#include "base/minmax.h"
#include "base/rng.h"

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

double jitter_longest(const struct round_cluster *cluster, double limit)
{
    uint64_t rounds = jitter_is_on(cluster) ? JITTER_ROUNDS : 1;
    double sum = 0;
    for (uint64_t k = 0; k < rounds; k++) {
        double longest = 0;
        for (size_t i = 1; i <= cluster->workers; i++)
            longest = max_double(longest, jitter_steps(cluster, i, k, 1));
        sum += min_double(longest, limit);
    }
    return sum / (double)rounds;
}
