/* A schedule: what one rank does in a collective, step by step, over ranges of a vector of n
 * floats.
 *
 * Schedules are rank arithmetic and nothing else; run.h carries them out, cost.h says what they
 * cost. Steps take effect as if one after another, each when those before it that touch its range
 * have; what does not depend on each other happens at once. Every send of one rank has its receive
 * in the peer's schedule, of the same length, and between two ranks both stand in the same order.
 *
 * Sums are taken in an order that depends on ranks alone, and each element ends with the same bits
 * on every rank. */
#ifndef PL_COLL_COLL_SCHEDULE_H
#define PL_COLL_COLL_SCHEDULE_H

#include "tensor/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum step_kind {
    STEP_SEND,
    STEP_RECV,   /* replaces the range */
    STEP_REDUCE, /* receives, and reduces into the range */
    STEP_FOLD,   /* reduces one range of this rank's into another */
    STEP_COPY,   /* copies it */
};

struct step {
    enum step_kind kind;
    bool final;     /* SEND, RECV: these are results, no longer parts of a sum */
    uint32_t peer;  /* SEND, RECV, REDUCE: a rank */
    size_t at, len; /* floats; from n on: scratch */
    size_t source;  /* FOLD, COPY: where from */
    bool exact;     /* the floats travel as they are, whatever the codec */
};

struct schedule {
    size_t ranks, me, n;
    size_t scratch; /* floats that are needed beyond the vector */
    struct step *step;
    size_t count, room;
    bool failed; /* out of memory */
};

enum coll_algorithm {
    COLL_AUTO,
    COLL_TREE,
    COLL_BUTTERFLY,
    COLL_RING,
    COLL_CHUNKED_RING,
    COLL_HALVING_DOUBLING,
    COLL_SCATTER_GATHER,
    COLL_ALGORITHMS
};

/* "chunked_ring"; NULL for no algorithm. And back: COLL_ALGORITHMS when there is none. */
const char *coll_algorithm_name(enum coll_algorithm algorithm);
enum coll_algorithm coll_algorithm_find(const char *name);

/* An all-reduce of n floats. `cut` (ranks + 1 offsets from 0 to n, ascending; NULL: equal parts)
 * gives the part that each rank owns in a scatter_gather; other algorithms ignore it. The caller
 * releases the schedule, whatever is returned. ERR_NOMEM */
int schedule_allreduce(struct schedule *s, enum coll_algorithm algorithm, size_t ranks, size_t me,
                       size_t n, const size_t *cut);

/* The vector of `root` to all; the reduced vector to `root`, the others' left undefined. Long
 * vectors go along a chain of ranks, so that each sends them once; short ones through a tree. */
int schedule_broadcast(struct schedule *s, size_t ranks, size_t me, size_t root, size_t n,
                       size_t chunk);
int schedule_reduce(struct schedule *s, size_t ranks, size_t me, size_t root, size_t n,
                    size_t chunk);

/* Long vectors to rank 0, which brings nothing to the sum, and from it, with all links as busy as
 * each other (relay.c). */
int schedule_relay_reduce(struct schedule *s, size_t ranks, size_t me, size_t n);
int schedule_relay_broadcast(struct schedule *s, size_t ranks, size_t me, size_t n);

/* Likewise to rank 0, but each rank sends its vector there itself: for codecs that must not code a
 * sum at each hop. */
int schedule_star_reduce(struct schedule *s, size_t ranks, size_t me, size_t n);

/* Rank r's part is [cut[r], cut[r + 1]) (NULL: equal parts). gather: all parts to `root`;
 * all_gather: to all; reduce_scatter: each part reduced at its rank, the rest left undefined. */
int schedule_gather(struct schedule *s, size_t ranks, size_t me, size_t root, size_t n,
                    const size_t *cut);
int schedule_all_gather(struct schedule *s, size_t ranks, size_t me, size_t n, const size_t *cut);
int schedule_reduce_scatter(struct schedule *s, size_t ranks, size_t me, size_t n,
                            const size_t *cut);
/* The same, but each rank sends its contributions to their owners itself. */
int schedule_scatter(struct schedule *s, size_t ranks, size_t me, size_t n, const size_t *cut);

/* The two halves of a split exchange (exchange.h): sums to rank 0, or to the owner of each equal
 * part, and the results from there. */
int schedule_split_reduce(struct schedule *s, enum codec codec, bool at_root, size_t ranks,
                          size_t me, size_t n);
int schedule_split_broadcast(struct schedule *s, bool at_root, size_t ranks, size_t me, size_t n);

void schedule_release(struct schedule *s);

/* The floats [from, from + len) of the vector are to travel as they are. Steps that touch more than
 * these are divided, by all ranks alike. Not for schedules with scratch floats. ERR_NOMEM */
int schedule_set_exact(struct schedule *s, size_t from, size_t len);

/* ---- for the algorithms ---- */

void schedule_begin(struct schedule *s, size_t ranks, size_t me, size_t n);
int schedule_end(const struct schedule *s); /* OK or ERR_NOMEM */

void schedule_send(struct schedule *s, size_t to, size_t at, size_t len, bool final);
void schedule_recv(struct schedule *s, size_t from, size_t at, size_t len, bool final);
void schedule_add(struct schedule *s, size_t from, size_t at, size_t len); /* STEP_REDUCE */
void schedule_fold(struct schedule *s, size_t source, size_t at, size_t len);
void schedule_copy(struct schedule *s, size_t source, size_t at, size_t len);

/* Where part i of `parts` begins: equal parts, cut at multiples of CODEC_BLOCK floats where that
 * leaves each something. */
size_t schedule_cut(size_t n, size_t parts, size_t i);

/* The same from a caller's cuts, or equal ones for NULL. */
static inline size_t schedule_part(const size_t *cut, size_t n, size_t parts, size_t i)
{
    return cut ? cut[i] : schedule_cut(n, parts, i);
}

void schedule_tree(struct schedule *s);
void schedule_tree_reduce(struct schedule *s, size_t root);
void schedule_tree_broadcast(struct schedule *s, size_t root);
void schedule_butterfly(struct schedule *s);
void schedule_ring(struct schedule *s);
void schedule_chunked_ring(struct schedule *s);
void schedule_halving_doubling(struct schedule *s);
void schedule_scatter_gather(struct schedule *s, const size_t *cut);
void schedule_scatter_parts(struct schedule *s, const size_t *cut); /* its first half */

/* Ranks beyond a power of two are folded into their neighbours before a butterfly: of the first
 * 2·(P − 2^m) ranks the even ones give their vector to the next and get the result at the end. */
struct folded {
    size_t power; /* 2^m ≤ P */
    size_t extra; /* P − 2^m */
    bool out;     /* this rank only gives and gets */
    size_t rank;  /* among the 2^m */
};
struct folded schedule_folded(size_t ranks, size_t me);
size_t schedule_unfolded(size_t ranks, size_t rank); /* back to a rank of all */
void schedule_fold_in(struct schedule *s, const struct folded *f);
void schedule_fold_out(struct schedule *s, const struct folded *f);

#endif
