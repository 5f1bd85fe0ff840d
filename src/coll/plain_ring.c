/* Ring (Elastic §4.1, Eq. 4.4): every rank's whole vector travels round the ring, and after P − 1
 * steps each rank has received all. To end with the same bits everywhere, a rank keeps the vectors
 * and sums them in the order of ranks. That takes the memory of P vectors and the traffic of P − 1.
 */
#include "coll/coll_schedule.h"

void schedule_ring(struct schedule *s)
{
    size_t P = s->ranks, n = s->n, me = s->me;
    if (P == 1)
        return;
    size_t next = (me + 1) % P, prev = (me + P - 1) % P;
    for (size_t k = 0; k + 1 < P; k++) {
        size_t out = (me + P - k) % P, in = (me + P - k - 1) % P;
        schedule_send(s, next, k == 0 ? 0 : n + out * n, n, false);
        schedule_recv(s, prev, n + in * n, n, false);
    }
    size_t sum = me == 0 ? 0 : n; /* rank 0's vector, wherever it is */
    for (size_t r = 1; r < P; r++)
        schedule_fold(s, r == me ? 0 : n + r * n, sum, n);
    if (me != 0)
        schedule_copy(s, sum, 0, n);
}
