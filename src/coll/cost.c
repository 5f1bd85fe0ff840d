#include "coll/cost.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "base/status.h"

#include <math.h>

/* ---- closed forms ---- */

static double halving_doubling(const struct cost_model *m, size_t ranks, double bytes)
{
    struct folded f = schedule_folded(ranks, 0);
    double q = (double)f.power, rounds = log2(q);
    double move = bytes * (m->v + 2 * m->z / m->cores), add = bytes * m->g / m->cores;
    double cost = 2 * rounds * m->u + (q - 1) / q * (2 * move + add);
    return f.extra ? cost + 2 * m->u + 2 * move + add : cost;
}

double cost_allreduce(enum coll_algorithm algorithm, const struct cost_model *m, size_t ranks,
                      double bytes, double block)
{
    double p = (double)ranks, u = m->u, v = m->v, z = m->z, g = m->g, c = m->cores, b = bytes;
    PL_ASSERT(ranks > 0 && c > 0);
    if (ranks == 1)
        return 0;
    switch (algorithm) {
    case COLL_TREE:
        PL_ASSERT(block > 0);
        return log2(p) * (u + b * v + 2 * b * z + b * g) + b / block * (u + (v + 2 * z) * block);
    case COLL_BUTTERFLY: return log2(p) * (u + b * v + 2 * b * z / c + b * g / c);
    case COLL_RING: return (p - 1) * (u + b * v + 2 * b * z + b * g);
    case COLL_CHUNKED_RING:
    case COLL_SCATTER_GATHER:
        return (p - 1) * (2 * u + 2 * b * v / p + 4 * b * z / (c * p) + b * g / (c * p));
    case COLL_HALVING_DOUBLING: return halving_doubling(m, ranks, b);
    default: PL_ASSERT(!"an algorithm has been chosen");
    }
    return NAN;
}

double cost_equation_4_6(const struct cost_model *m, double ranks, double bytes)
{
    double p = ranks, v = m->v, z = m->z / m->cores, g = m->g / m->cores, log2_p = log2(p);
    return m->u * (2 * p - 2 - log2_p) + bytes * (v + 2 * z) * (2 - 2 / p - log2_p) +
           bytes * g * (1 - 1 / p - log2_p);
}

/* ---- one rank of a schedule ---- */

/* Butterflies and rings work in rounds, one after another on every rank. A round lasts as long as
 * its bytes take, and at least as long as its first piece is in transit, since the next round sends
 * what has arrived. In other algorithms messages share the links freely, and the chain of hops is
 * added. */
static bool has_rounds(enum coll_algorithm algorithm)
{
    return algorithm != COLL_TREE && algorithm != COLL_SCATTER_GATHER;
}

/* The longest chain of messages of which each waits for the one before. */
static size_t count_hops(enum coll_algorithm algorithm, size_t ranks)
{
    struct folded f = schedule_folded(ranks, 0);
    size_t down = 0;
    while ((size_t)1 << (down + 1) <= ranks)
        down++;
    switch (algorithm) {
    case COLL_TREE: return 2 * down;
    case COLL_BUTTERFLY: /* folded ranks: the vector continues, returns, or both */
        return down + (f.extra > 0) + (2 * f.extra > f.power);
    case COLL_RING: return ranks - 1;
    case COLL_CHUNKED_RING: return 2 * (ranks - 1);
    case COLL_HALVING_DOUBLING: return 2 * down + (f.extra ? 2 : 0);
    default: return ranks > 1 ? 2 : 0;
    }
}

/* One direction of a rank's link. */
struct way {
    double rate;
    double bytes;  /* s, were nothing waited for */
    double rounds; /* s, round after round */
    double tail;   /* s, from the end of the last round's bytes here to their arrival */
    size_t steps, pieces;
};

/* fmin and fmax without their care for NaN. */
static double bytes_of(size_t floats)
{
    return (double)floats * sizeof(float);
}

/* A piece from one rank's memory into another's. */
static double piece_time(const struct cost_links *links, double rate, size_t floats)
{
    double bytes = bytes_of(floats);
    return bytes / rate + links->latency + 2 * links->per_message + bytes / links->reduce_rate;
}

static void advance_way(const struct cost_links *links, struct way *way, size_t len, size_t chunk)
{
    double bytes = bytes_of(len) / way->rate;
    double first = piece_time(links, way->rate, len < chunk ? len : chunk);
    way->bytes += bytes;
    way->rounds += max_double(bytes, first);
    way->tail = bytes > first ? links->latency : 0;
    way->steps++;
    way->pieces += (len + chunk - 1) / chunk;
}

/* Seconds until a rank has done its part. `slowest` is the rate of the slowest link. */
static double rank_time(enum coll_algorithm algorithm, const struct cost_links *links,
                        const struct schedule *s, size_t chunk, double slowest)
{
    struct way out = {.rate = links->send_rate[s->me]}, in = {.rate = links->recv_rate[s->me]};
    double reduced = 0;
    size_t piece = 0, chain = count_hops(algorithm, s->ranks);
    for (size_t i = 0; i < s->count; i++) {
        const struct step *step = &s->step[i];
        if (step->kind == STEP_SEND)
            advance_way(links, &out, step->len, chunk);
        else if (step->kind == STEP_RECV || step->kind == STEP_REDUCE)
            advance_way(links, &in, step->len, chunk);
        if (step->kind == STEP_REDUCE || step->kind == STEP_FOLD)
            reduced += bytes_of(step->len);
        piece = step->len > piece ? step->len : piece;
    }
    piece = piece < chunk ? piece : chunk;
    double work = (double)(out.pieces + in.pieces) * links->per_message;
    double busy = max_double(work + reduced / links->reduce_rate, max_double(out.bytes, in.bytes));
    double hop = piece_time(links, slowest, piece);
    if (!has_rounds(algorithm)) /* one piece of the chain is among the bytes of its link */
        return busy + (double)chain * hop - bytes_of(piece) / slowest;
    size_t steps = out.steps > in.steps ? out.steps : in.steps;
    PL_ASSERT(steps <= chain);
    double rounds = max_double(out.rounds + out.tail, in.rounds + in.tail);
    return max_double(busy, rounds + (double)(chain - steps) * hop);
}

/* ---- all ranks ---- */

static double slowest_rate(const struct cost_links *links)
{
    double slowest = INFINITY;
    for (size_t r = 0; r < links->ranks; r++)
        slowest = min_double(slowest, min_double(links->send_rate[r], links->recv_rate[r]));
    PL_ASSERT(slowest > 0);
    return slowest;
}

/* A half that is sent in blocks, in both directions by turns, counts as one message in each
 * direction. */
static void join_blocks(struct schedule *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct step step = s->step[i];
        size_t k = kept, least = kept > 2 ? kept - 2 : 0;
        while (k > least &&
               !(s->step[k - 1].kind == step.kind && s->step[k - 1].peer == step.peer &&
                 s->step[k - 1].final == step.final))
            k--;
        if (k > least)
            s->step[k - 1].len += step.len;
        else
            s->step[kept++] = step;
    }
    s->count = kept;
}

/* Seconds for each of several sizes of a piece: a schedule is made once for all of them. */
static int predict_chunks(enum coll_algorithm algorithm, const struct cost_links *links, size_t n,
                          const size_t *cut, const size_t *chunk, size_t chunks, double *seconds)
{
    double slowest = slowest_rate(links);
    for (size_t k = 0; k < chunks; k++)
        seconds[k] = 0;
    for (size_t r = 0; r < links->ranks && links->ranks > 1 && n > 0; r++) {
        struct schedule s;
        int rc = schedule_allreduce(&s, algorithm, links->ranks, r, n, cut);
        if (algorithm == COLL_HALVING_DOUBLING)
            join_blocks(&s);
        for (size_t k = 0; k < chunks; k++) {
            double mine = INFINITY;
            if (rc == OK)
                mine = rank_time(algorithm, links, &s, chunk[k], slowest);
            seconds[k] = max_double(seconds[k], mine);
        }
        schedule_release(&s);
        if (rc != OK)
            return rc;
    }
    return OK;
}

double cost_predict(enum coll_algorithm algorithm, const struct cost_links *links, size_t n,
                    size_t chunk, const size_t *cut)
{
    double seconds;
    PL_ASSERT(chunk > 0);
    predict_chunks(algorithm, links, n, cut, &chunk, 1, &seconds);
    return seconds;
}

/* ---- shares ---- */

/* With T known, rank r may own (T·rate/b - 1)/(p - 2) of the vector. When the slowest link
 * determines T, the sum exceeds 1, and all shares are reduced in proportion. Parts begin at
 * multiples of 16 floats, as equal ones do. A rank that owns nothing gets no float from rounding.
 */
void cost_shares(const struct cost_links *links, size_t n, size_t *cut)
{
    enum { LINE = 16 };
    size_t p = links->ranks, unit = n / LINE >= p ? LINE : 1, last = 0;
    double slowest = slowest_rate(links), sum = 0, spare = 0, so_far = 0;
    for (size_t r = 0; r < p; r++)
        sum += min_double(links->send_rate[r], links->recv_rate[r]);
    double T = max_double(1 / slowest, 2 * ((double)p - 1) / sum); /* for one byte */
    cut[0] = 0;
    for (size_t r = 0; r < p; r++) {
        double own = max_double(0, T * min_double(links->send_rate[r], links->recv_rate[r]) - 1);
        last = own > 0 ? r : last;
        spare += own;
    }
    for (size_t r = 0; r < p; r++) {
        so_far += max_double(0, T * min_double(links->send_rate[r], links->recv_rate[r]) - 1);
        double share = p > 2 ? so_far / spare : (double)(r + 1) / (double)p;
        size_t at = (size_t)(share * (double)(n / unit) + 0.5) * unit;
        cut[r + 1] = r + 1 == p || (p > 2 && r >= last) ? n : at;
    }
}

/* ---- the choice ---- */

enum { CHUNK_LEAST = 4 * 1024, CHUNKS = 8 }; /* floats: 16 KiB to 2 MiB */

/* Among sizes that are as good, the largest: fewer pieces. COLL_AUTO: no memory. */
static struct cost_choice best_chunk(enum coll_algorithm algorithm, const struct cost_links *links,
                                     size_t n, const size_t *cut)
{
    size_t chunk[CHUNKS], best = 0;
    double seconds[CHUNKS];
    for (size_t k = 0; k < CHUNKS; k++)
        chunk[k] = (size_t)CHUNK_LEAST << k;
    if (predict_chunks(algorithm, links, n, cut, chunk, CHUNKS, seconds) != OK)
        return (struct cost_choice){.algorithm = COLL_AUTO};
    for (size_t k = 1; k < CHUNKS; k++)
        if (seconds[k] < seconds[best])
            best = k;
    double good = seconds[best] * 1.01;
    for (size_t k = best; k < CHUNKS; k++)
        if (seconds[k] <= good)
            best = k;
    return (struct cost_choice){algorithm, chunk[best], seconds[best]};
}

struct cost_choice cost_choose(const struct cost_links *links, size_t n, unsigned allowed,
                               size_t *cut)
{
    bool even = schedule_folded(links->ranks, 0).extra == 0;
    const enum coll_algorithm order[] = {
        even ? COLL_HALVING_DOUBLING : COLL_CHUNKED_RING, even ? COLL_CHUNKED_RING : COLL_BUTTERFLY,
        even ? COLL_BUTTERFLY : COLL_SCATTER_GATHER,      even ? COLL_SCATTER_GATHER : COLL_TREE,
        even ? COLL_TREE : COLL_HALVING_DOUBLING,         COLL_RING,
    };
    enum { ALL = sizeof order / sizeof *order };
    struct cost_choice choice[ALL];
    double least = INFINITY;
    PL_ASSERT(allowed & COST_ANY);
    cost_shares(links, n, cut);
    for (size_t i = 0; i < ALL; i++) {
        if (!(allowed & 1u << order[i]))
            continue;
        choice[i] = best_chunk(order[i], links, n, cut);
        if (choice[i].algorithm == COLL_AUTO)
            return choice[i]; /* a guess would differ from the other ranks' choice */
        least = min_double(least, choice[i].seconds);
    }
    for (size_t i = 0;; i++)
        if (allowed & 1u << order[i] && choice[i].seconds <= least * 1.02)
            return choice[i];
}

bool cost_drifted(double predicted, const double *measured, size_t n)
{
    if (n > 0 && measured[n - 1] >= 1.3 * predicted)
        return true;
    if (n < 3)
        return false;
    double a = measured[n - 3], b = measured[n - 2], c = measured[n - 1];
    double median = max_double(min_double(a, b), min_double(max_double(a, b), c));
    return median > 1.25 * predicted || median < 0.8 * predicted;
}
