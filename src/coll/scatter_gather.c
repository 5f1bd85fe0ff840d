/* Scatter and gather (Elastic Fig. 4.1b), as sharded parameter servers do it: every rank owns a
 * part of the vector, gets the others' contributions to it, and sends them the sum. Two rounds.
 * Parts may be unequal: a rank with a slow link owns less. A part's sum begins with its owner and
 * continues with the ranks after it, in the order in which they send. */
#include "coll/coll_schedule.h"

void schedule_scatter_parts(struct schedule *s, const size_t *cut)
{
    size_t P = s->ranks, n = s->n, me = s->me;
    size_t mine = schedule_part(cut, n, P, me);
    size_t my_len = schedule_part(cut, n, P, me + 1) - mine;
    for (size_t k = 1; k < P; k++) {
        size_t to = (me + P - k) % P, from = (me + k) % P;
        size_t at = schedule_part(cut, n, P, to);
        schedule_send(s, to, at, schedule_part(cut, n, P, to + 1) - at, false);
        schedule_add(s, from, mine, my_len);
    }
}

void schedule_scatter_gather(struct schedule *s, const size_t *cut)
{
    size_t P = s->ranks, n = s->n, me = s->me;
    size_t mine = schedule_part(cut, n, P, me);
    size_t my_len = schedule_part(cut, n, P, me + 1) - mine;
    schedule_scatter_parts(s, cut);
    for (size_t k = 1; k < P; k++) {
        size_t to = (me + P - k) % P, from = (me + k) % P;
        size_t at = schedule_part(cut, n, P, from);
        schedule_send(s, to, mine, my_len, true);
        schedule_recv(s, from, at, schedule_part(cut, n, P, from + 1) - at, true);
    }
}
