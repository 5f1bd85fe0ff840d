/* The cost of an all-reduce: the paper's closed forms, for its figures; a prediction for measured
 * links, which may differ for each rank; and the choice of an algorithm by that prediction.
 * Prediction and choice use comparisons and + - * / alone, so that ranks with the same measurements
 * make the same choice on any machine. */
#ifndef PL_COLL_COST_H
#define PL_COLL_COST_H

#include "coll/coll_schedule.h"

/* ---- closed forms (Elastic §4.1.2) ---- */

/* The paper's prices: u of a message (s); v to send, z to serialise and g to reduce a byte
 * (s/byte). The last two are divided by `cores` where the paper does so. */
struct cost_model {
    double u, v, z, g;
    double cores;
};

/* Seconds for `bytes` on `ranks` ranks; 0 on one. log2 p is real, as in the paper, not rounded up.
 *
 *   tree              Eq. 4.1 + Eq. 4.2, serial; `block` (bytes, > 0) is of the broadcast
 *   butterfly         Eq. 4.7; with one core Eq. 4.3
 *   ring              Eq. 4.4, serial
 *   chunked_ring      Eq. 4.8; with one core Eq. 4.5
 *   halving_doubling  ours, with q = 2^⌊log2 p⌋, β = b(v + 2z/c), γ = bg/c:
 *                     2·log2 q·u + 2(q - 1)/q·β + (q - 1)/q·γ, and when p > q, for whole vectors
 *                     handed in and back: 2u + 2β + γ
 *   scatter_gather    ours, equal shares: each rank starts p - 1 messages of b/p towards the
 *                     owners, one after another, and p - 1 with its sums, so
 *                     2(p - 1)u + 2(p - 1)/p·β + (p - 1)/p·γ: the price of a chunked ring.
 *                     cost_predict alone shows that it does not wait for neighbours, since there
 *                     the latency and the work of a message are separate. */
double cost_allreduce(enum coll_algorithm algorithm, const struct cost_model *m, size_t ranks,
                      double bytes, double block);

/* The left side of Eq. 4.6, z and g divided among the cores: above 0 where a chunked ring costs
 * more than a butterfly. Any p > 0, as in Table 4.1. */
double cost_equation_4_6(const struct cost_model *m, double ranks, double bytes);

/* ---- volume ---- */

/* Messages, of which one may travel in several pieces, and bytes that all ranks together send. */
struct cost_volume {
    double messages, bytes;
};

/* An all-reduce of n floats (COLL_AUTO: by its rule), on P ranks; with q = 2^⌊log2 P⌋, b = 4n:
 *
 *   tree                             2(P - 1) messages, 2(P - 1)b
 *   butterfly                        q·log2 q + 2(P - q), as many times b
 *   ring                             P(P - 1), P(P - 1)b
 *   chunked_ring, scatter_gather     2P(P - 1), 2(P - 1)b
 *   halving_doubling                 2q·log2 q + 3(P - q), 2(q - 1)b + 2(P - q)b
 *
 * For n ≥ P, and in halving_doubling n below 16,384, where longer halves go in several messages. */
struct cost_volume cost_sum_volume(enum coll_algorithm algorithm, size_t ranks, size_t n);

/* A gather of parts of n floats together, on all ranks, by a ring: P(P - 1) messages, (P - 1)b. */
struct cost_volume cost_gather_volume(size_t ranks, size_t n);

/* A step of a net in slices (SparkDML §2.3, Eq. 5 to 8, for this scheme: all gather and add up
 * themselves, once a batch). The paper's K and M(N_1 + N_2 + N_3) are in plan/sparkdml.h. */
struct cost_meeting {
    bool is_sum; /* of the gradient of a layer's inputs; else its outputs are gathered */
    size_t floats;
};

struct cost_sliced {
    size_t slices, replicas;
    enum coll_algorithm algorithm;
    const struct cost_meeting *meeting; /* of a replica */
    size_t count;
    const size_t *peers; /* floats that the peers of each slice add up */
};

/* Without the votes of mates and the exchange of the commit point, which no size changes. */
struct cost_volume cost_sliced_step(const struct cost_sliced *s);

/* ---- real links ---- */

struct cost_links {
    size_t ranks;
    const double *send_rate, *recv_rate; /* bytes/s of each rank's link, > 0; both at once */
    double latency;                      /* s, of a message that finds everything idle */
    double reduce_rate;                  /* bytes/s a rank adds; INFINITY: not counted */
    double per_message;                  /* s of work, at either end, per piece */
};

/* Seconds for an all-reduce of n floats in pieces of `chunk` floats, from every rank's schedule
 * (`cut` as in schedule.h). INFINITY when there is no memory to make one.
 *
 * Links are busy or wait for a piece's way, nothing else. 1e7 floats on two to eight equal
 * simulated links take what is said here within 6 %, but halving_doubling up to a quarter more,
 * where pieces of several of its rounds share a link; and the fewer pieces to a round, the more
 * (cost_timeline.h sees that). Of crowds at a switch nothing is known. */
double cost_predict(enum coll_algorithm algorithm, const struct cost_links *links, size_t n,
                    size_t chunk, const size_t *cut);

/* Parts of a scatter_gather of n floats (ranks + 1 places) that bring its busiest link to rest
 * soonest. A rank that owns the share s moves b·(1 + (p - 2)s) bytes each way; the least time is
 * max(b / slowest, 2(p - 1)b / sum of rates). */
void cost_shares(const struct cost_links *links, size_t n, size_t *cut);

struct cost_choice {
    enum coll_algorithm algorithm;
    size_t chunk;   /* floats */
    double seconds; /* predicted */
};

enum { COST_ANY = (1u << COLL_ALGORITHMS) - 2 };

/* The cheapest of the `allowed` (a bit for each enum coll_algorithm; some are not for every codec,
 * and a ring takes the memory of P vectors). Of those within 2 % of it, the first in this order:
 * halving_doubling where ranks are a power of two (its sums run in the tree's order), chunked_ring,
 * butterfly, scatter_gather, tree, halving_doubling, ring. `cut` (ranks + 1 places) is filled with
 * the parts for scatter_gather, whatever is chosen. COLL_AUTO: out of memory. */
struct cost_choice cost_choose(const struct cost_links *links, size_t n, unsigned allowed,
                               size_t *cut);

/* Have exchanges (seconds, oldest first) drifted from the prediction? They have when the last one
 * took 1.3 times as long or more, or the median of the last three is above 1.25 times or below 0.8
 * times. */
bool cost_drifted(double predicted, const double *measured, size_t n);

#endif
