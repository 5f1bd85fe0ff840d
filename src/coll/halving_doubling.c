/* Recursive halving and doubling: in round k partners at a distance of 2^k halve between them what
 * they both have, each summing its half; then the way back, doubling. 2⌈log2 P⌉ rounds, and of the
 * vector 2(P − 1)/P each way, as in a ring. Nearest partners come first, so that a sum has the
 * binomial tree's order and, where P is a power of two, its bits.
 *
 * Among a power of two of ranks a long half travels in blocks: first what its receiver will give
 * away in the next round, on the way back first what its sender had all along. So every rank can
 * begin its next round at the same moment, and no link is idle while another is shared. */
#include "coll/coll_schedule.h"
#include "tensor/vec.h"

enum { ROUNDS_MAX = 64, BLOCK_MIN = 4096 };

/* The ranges that a rank sends its partner in a round and receives in return. */
struct half {
    size_t partner;
    struct range give, take;
};

struct blocks {
    struct schedule *s;
    const struct folded *f;
    size_t partner;
    bool doubling;
};

static struct range lower_half(struct range r)
{
    return (struct range){r.from, schedule_cut(r.len, 2, 1)};
}

static struct range upper_half(struct range r)
{
    size_t low = schedule_cut(r.len, 2, 1);
    return (struct range){r.from + low, r.len - low};
}

static void move_halves(const struct blocks *b, struct range give, struct range take)
{
    schedule_send(b->s, b->partner, give.from, give.len, b->doubling);
    if (b->doubling)
        schedule_recv(b->s, b->partner, take.from, take.len, true);
    else
        schedule_add(b->s, b->partner, take.from, take.len);
}

/* `bit`: of the round in which these ranges are, or were, halved next. */
static void move_in_blocks(const struct blocks *b, size_t bit, struct range give, struct range take)
{
    if (bit >= b->f->power || b->f->extra > 0 || give.len + take.len < 4 * BLOCK_MIN) {
        move_halves(b, give, take);
        return;
    }
    bool keeps_upper = b->f->rank & bit;
    if (keeps_upper == b->doubling) {
        move_in_blocks(b, 2 * bit, upper_half(give), upper_half(take));
        move_in_blocks(b, 2 * bit, lower_half(give), lower_half(take));
    } else {
        move_in_blocks(b, 2 * bit, lower_half(give), lower_half(take));
        move_in_blocks(b, 2 * bit, upper_half(give), upper_half(take));
    }
}

/* Results are sent on in the ranges in which they arrived, since a code with a scale depends on
 * their beginnings. */
static void hand_on(struct schedule *s, const struct folded *f)
{
    const struct range all = {0, s->n}, halves[2] = {lower_half(all), upper_half(all)};
    for (int i = 0; i < 2 && s->me < 2 * f->extra; i++) {
        if (f->out)
            schedule_recv(s, s->me + 1, halves[i].from, halves[i].len, true);
        else
            schedule_send(s, s->me - 1, halves[i].from, halves[i].len, true);
    }
}

void schedule_halving_doubling(struct schedule *s)
{
    struct folded f = schedule_folded(s->ranks, s->me);
    struct half half[ROUNDS_MAX];
    struct range mine = {0, s->n};
    size_t rounds = 0;
    schedule_fold_in(s, &f);
    for (size_t bit = 1; !f.out && bit < f.power; bit *= 2) {
        struct half *h = &half[rounds++];
        bool keeps_upper = f.rank & bit;
        h->partner = schedule_unfolded(s->ranks, f.rank ^ bit);
        h->give = keeps_upper ? lower_half(mine) : upper_half(mine);
        h->take = mine = keeps_upper ? upper_half(mine) : lower_half(mine);
        struct blocks b = {s, &f, h->partner, false};
        move_in_blocks(&b, 2 * bit, h->give, h->take);
    }
    while (rounds-- > 0) {
        struct blocks b = {s, &f, half[rounds].partner, true};
        move_in_blocks(&b, (size_t)2 << rounds, half[rounds].take, half[rounds].give);
    }
    hand_on(s, &f);
}
