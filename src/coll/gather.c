/* Parts of a vector brought together, or summed apart: each rank has, or ends with, its own part.
 */
#include "coll/coll_schedule.h"

static size_t part_length(const struct schedule *s, const size_t *cut, size_t r)
{
    return schedule_part(cut, s->n, s->ranks, r + 1) - schedule_part(cut, s->n, s->ranks, r);
}

int schedule_gather(struct schedule *s, size_t ranks, size_t me, size_t root, size_t n,
                    const size_t *cut)
{
    schedule_begin(s, ranks, me, n);
    if (me != root)
        schedule_send(s, root, schedule_part(cut, n, ranks, me), part_length(s, cut, me), true);
    for (size_t r = 0; me == root && r < ranks; r++)
        if (r != root)
            schedule_recv(s, r, schedule_part(cut, n, ranks, r), part_length(s, cut, r), true);
    return schedule_end(s);
}

/* Round the ring, like the second half of a chunked ring. */
int schedule_all_gather(struct schedule *s, size_t ranks, size_t me, size_t n, const size_t *cut)
{
    schedule_begin(s, ranks, me, n);
    for (size_t k = 0; k + 1 < ranks; k++) {
        size_t out = (me + ranks - k) % ranks, in = (me + 2 * ranks - k - 1) % ranks;
        schedule_send(s, (me + 1) % ranks, schedule_part(cut, n, ranks, out),
                      part_length(s, cut, out), true);
        schedule_recv(s, (me + ranks - 1) % ranks, schedule_part(cut, n, ranks, in),
                      part_length(s, cut, in), true);
    }
    return schedule_end(s);
}

/* Like the first half, one part on, so that the sum of part r ends at rank r. */
int schedule_reduce_scatter(struct schedule *s, size_t ranks, size_t me, size_t n,
                            const size_t *cut)
{
    schedule_begin(s, ranks, me, n);
    for (size_t k = 0; k + 1 < ranks; k++) {
        size_t out = (me + 2 * ranks - k - 1) % ranks, in = (me + 2 * ranks - k - 2) % ranks;
        schedule_send(s, (me + 1) % ranks, schedule_part(cut, n, ranks, out),
                      part_length(s, cut, out), false);
        schedule_add(s, (me + ranks - 1) % ranks, schedule_part(cut, n, ranks, in),
                     part_length(s, cut, in));
    }
    return schedule_end(s);
}

int schedule_scatter(struct schedule *s, size_t ranks, size_t me, size_t n, const size_t *cut)
{
    schedule_begin(s, ranks, me, n);
    schedule_scatter_parts(s, cut);
    return schedule_end(s);
}

int schedule_star_reduce(struct schedule *s, size_t ranks, size_t me, size_t n)
{
    schedule_begin(s, ranks, me, n);
    if (me > 0)
        schedule_send(s, 0, 0, n, false);
    for (size_t r = 1; me == 0 && r < ranks; r++)
        schedule_add(s, r, 0, n);
    return schedule_end(s);
}

int schedule_split_reduce(struct schedule *s, enum codec codec, bool at_root, size_t ranks,
                          size_t me, size_t n)
{
    bool direct = codec_drops(codec);
    if (at_root)
        return direct ? schedule_star_reduce(s, ranks, me, n)
                      : schedule_relay_reduce(s, ranks, me, n);
    return direct ? schedule_scatter(s, ranks, me, n, NULL)
                  : schedule_reduce_scatter(s, ranks, me, n, NULL);
}

int schedule_split_broadcast(struct schedule *s, bool at_root, size_t ranks, size_t me, size_t n)
{
    return at_root ? schedule_relay_broadcast(s, ranks, me, n)
                   : schedule_all_gather(s, ranks, me, n, NULL);
}
