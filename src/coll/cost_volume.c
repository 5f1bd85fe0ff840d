/* Messages and bytes of collectives, and of a step of a model in slices, without their time. */
#include "coll/auto.h"
#include "coll/cost.h"

#include "base/fault.h"

#include <math.h>

static struct cost_volume volume_of(double messages, double vectors, size_t n)
{
    return (struct cost_volume){messages, vectors * (double)n * sizeof(float)};
}

static void add_volume(struct cost_volume *sum, struct cost_volume v, double times)
{
    sum->messages += times * v.messages;
    sum->bytes += times * v.bytes;
}

struct cost_volume cost_sum_volume(enum coll_algorithm algorithm, size_t ranks, size_t n)
{
    const struct folded f = schedule_folded(ranks, 0);
    double p = (double)ranks, q = (double)f.power, extra = (double)f.extra, rounds = log2(q);
    if (ranks == 1)
        return (struct cost_volume){0, 0};
    switch (algorithm == COLL_AUTO ? auto_rule(CODEC_F32, ranks, n) : algorithm) {
    case COLL_TREE: return volume_of(2 * (p - 1), 2 * (p - 1), n);
    case COLL_BUTTERFLY: return volume_of(q * rounds + 2 * extra, q * rounds + 2 * extra, n);
    case COLL_RING: return volume_of(p * (p - 1), p * (p - 1), n);
    case COLL_CHUNKED_RING:
    case COLL_SCATTER_GATHER: return volume_of(2 * p * (p - 1), 2 * (p - 1), n);
    case COLL_HALVING_DOUBLING:
        return volume_of(2 * q * rounds + 3 * extra, 2 * (q - 1) + 2 * extra, n);
    default: PL_ASSERT(0);
    }
    return (struct cost_volume){0, 0};
}

struct cost_volume cost_gather_volume(size_t ranks, size_t n)
{
    double p = (double)ranks;
    return volume_of(p * (p - 1), p - 1, n);
}

struct cost_volume cost_sliced_step(const struct cost_sliced *s)
{
    struct cost_volume sum = {0, 0};
    for (size_t i = 0; i < s->count; i++) {
        const struct cost_meeting *m = &s->meeting[i];
        add_volume(&sum,
                   m->is_sum ? cost_sum_volume(s->algorithm, s->slices, m->floats)
                             : cost_gather_volume(s->slices, m->floats),
                   (double)s->replicas);
    }
    for (size_t f = 0; f < s->slices; f++)
        add_volume(&sum, cost_sum_volume(s->algorithm, s->replicas, s->peers[f]), 1);
    return sum;
}
