/* Butterfly, or recursive doubling (Elastic §4.1, Eq. 4.3): in round k partners at a distance of
 * 2^k exchange whole vectors, and both add. ⌈log2 P⌉ rounds: the fewest, for short vectors. The
 * partner's data waits in a second buffer until the vector has been sent to the partner. */
#include "coll/coll_schedule.h"

void schedule_butterfly(struct schedule *s)
{
    size_t n = s->n, round = 0;
    struct folded f = schedule_folded(s->ranks, s->me);
    schedule_fold_in(s, &f);
    for (size_t bit = 1; !f.out && bit < f.power; bit *= 2, round++) {
        size_t partner = schedule_unfolded(s->ranks, f.rank ^ bit);
        size_t second_buffer = n + (round & 1) * n;
        schedule_send(s, partner, 0, n, false);
        schedule_recv(s, partner, second_buffer, n, false);
        schedule_fold(s, second_buffer, 0, n);
    }
    schedule_fold_out(s, &f);
}
