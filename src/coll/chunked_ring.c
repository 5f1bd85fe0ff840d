/* Chunked ring (Elastic §4.1, Eq. 4.5): the vector is cut into P parts that go round the ring,
 * first to be summed, then as results. P − 1 steps each; a rank sends and receives 2(P − 1)/P of
 * the vector, which no algorithm undercuts. A part's sum begins at the rank of its number. */
#include "coll/coll_schedule.h"

/* The part that rank `me` handles `steps` after its own. */
static size_t part_after(const struct schedule *s, size_t steps)
{
    return (s->me + s->ranks - steps % s->ranks) % s->ranks;
}

static size_t part_start(const struct schedule *s, size_t part)
{
    return schedule_cut(s->n, s->ranks, part);
}

static size_t part_length(const struct schedule *s, size_t part)
{
    return part_start(s, part + 1) - part_start(s, part);
}

void schedule_chunked_ring(struct schedule *s)
{
    size_t P = s->ranks, next = (s->me + 1) % P, prev = (s->me + P - 1) % P;
    for (size_t k = 0; k + 1 < P; k++) {
        size_t out = part_after(s, k), in = part_after(s, k + 1);
        schedule_send(s, next, part_start(s, out), part_length(s, out), false);
        schedule_add(s, prev, part_start(s, in), part_length(s, in));
    }
    for (size_t k = 0; k + 1 < P; k++) {
        size_t out = part_after(s, P - 1 + k), in = part_after(s, P + k);
        schedule_send(s, next, part_start(s, out), part_length(s, out), true);
        schedule_recv(s, prev, part_start(s, in), part_length(s, in), true);
    }
}
