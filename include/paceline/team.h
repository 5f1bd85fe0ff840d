/* Teams: processes that find each other and move vectors together, with or without training.
 *
 * One process coordinates; every process, the coordinator included, is a member. Members call the
 * same collectives in the same order on a channel; calls on different channels, from different
 * threads, continue at the same time and do not wait for each other. Sums are taken in an order
 * that depends on ranks alone, and every member ends with the same bits.
 *
 * When a member is lost, each channel reports it once to each remaining member, by PL_ERR_PEER:
 * from the call under way, within a second on a LAN, or, on a member that already has its result,
 * from the next call, which then does nothing else. Sizes and ranks are then the new ones, and the
 * next call is the first of the new team on all members. Some members may have a result that others
 * lack: let the team agree where to continue, for example by PL_MIN over a counter of steps. For
 * results that either all members have or none, even when members die, see paceline/shared.h; for
 * state that late joiners read, see paceline/kv.h.
 *
 * A team may grow while it works (members_max). A member that joins is reported in the same way to
 * the earlier members, which keep their ranks unless one was lost; the joiner's first call is the
 * first of the new team. A joiner takes part in the agreement on where to continue: in the example,
 * it gives the largest counter that there is.
 *
 * If one member cannot carry out a call, for lack of memory or because the others make another
 * call, its membership ends, so that no member waits for it. */
#ifndef PACELINE_TEAM_H
#define PACELINE_TEAM_H

#include "paceline/engine.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_TEAM_CHANNELS 8

typedef struct pl_team pl_team;

typedef struct pl_team_options {
    size_t size;            /* sizeof this struct */
    const char *rendezvous; /* "host:port" where the coordinator listens */
    uint32_t members;       /* > 0: this process coordinates a team of so many members; exactly one
                               process does */
    uint32_t members_max;   /* of the coordinator: once all have joined, more may, while there are
                               fewer than this; 0: as `members`, so that a joiner replaces a lost
                               member. A process that finds the team full waits for a place */
    const char *listen;     /* where this member listens; NULL: 127.0.0.1:0 */
    int insecure;           /* do not encrypt what is sent to members that say so, too */
    const char *key;        /* the team's (paceline/key.h), which all members prove that they have;
                               copied. NULL: at loopback the user's own; beyond it the team is
                               refused */
    double timeout_s;       /* for all to find each other; 0: 60 */
    uint32_t stripes;       /* connections to open to each peer on another host, ≤ 16; 0: 4 */
    int no_shared_memory;   /* connections also to peers on this host */
    int ucx;           /* bytes to other hosts by UCX, where all were built with it and want it;
                          only among hosts that trust each other */
    uint64_t kv_bytes; /* of values (paceline/kv.h) that this member may hold; 0: no limit */
} pl_team_options;

/* Join, and wait until all have. A later member waits until there is a place for it and the rounds
 * of shared variables that are being reduced have ended. PL_ERR_INPUT (an address; a port in use;
 * the key), PL_ERR_USAGE (no rendezvous, too many members), PL_ERR_TIMEOUT, PL_ERR_PEER (refused,
 * or the coordinator was lost), PL_ERR_NOMEM, PL_ERR_IO */
int pl_team_open(pl_engine *engine, const pl_team_options *options, pl_team **out);

/* Leave the team. The coordinator's end ends the team. No call of this member may be under way.
 * Calls of others that need this member end, so the last call before should be one whose result no
 * other member needs. NULL is allowed. */
void pl_team_close(pl_team *team);

/* Members at this moment, and the rank of this one among them: 0, 1, ... 0 members: it is over. */
uint32_t pl_team_size(const pl_team *team);
uint32_t pl_team_rank(const pl_team *team);

/* Message of the last call on this channel that failed. */
const char *pl_team_error(const pl_team *team, uint32_t channel);

typedef enum pl_reduce_op { PL_SUM, PL_MEAN, PL_MAX, PL_MIN, PL_USER_OP } pl_reduce_op;

typedef struct pl_reduction {
    size_t size; /* sizeof this struct */
    pl_reduce_op op;
    double weight; /* PL_MEAN: of this member's vector, ≥ 0; all equal when all give 0 */
    /* PL_USER_OP: y ← y ∘ x over a range of the vector, of any length; associative, commutative,
     * and called from threads of the library. */
    void (*fn)(void *user, float *y, const float *x, size_t n);
    void *user;
} pl_reduction;

typedef struct pl_call_options {
    size_t size;      /* sizeof this struct */
    uint32_t channel; /* < PL_TEAM_CHANNELS */
    /* NULL or "auto", or "tree" "butterfly" "ring" "chunked_ring" "halving_doubling"
     * "scatter_gather" */
    const char *algorithm;
    const char *wire;  /* NULL or "f32", "bf16", "int8": how numbers travel */
    uint32_t chunk_kb; /* pieces that vectors travel in, at most 4096; 0: 256 */
    uint32_t stripes;  /* connections used; 0: the faster number by `auto`, or 1 with a named
                          algorithm */
    double spin_us;    /* how long a wait looks again and again before it sleeps; for vectors of
                          up to 16 Ki floats at least 30 */
    /* The rounding error that bf16 and int8 have not delivered yet: n floats that the caller owns,
     * sets to zero at first and keeps from call to call; NULL: the error is lost. */
    float *residual;
} pl_call_options;

/* x (n floats, ≤ 1e9) of all members, reduced, to all. Costs 2(P − 1)/P of its bytes each way with
 * most algorithms. NULL reduction: the sum.
 * PL_ERR_PEER, PL_ERR_USAGE (the channel is in use, an option is wrong, members' calls do not fit
 * together), PL_ERR_NOMEM: x and the residual are undefined */
int pl_team_allreduce(pl_team *team, float *x, size_t n, const pl_reduction *reduction,
                      const pl_call_options *options);

/* x of rank `root` to all; x of all, reduced, to `root`. Same errors. */
int pl_team_broadcast(pl_team *team, uint32_t root, float *x, size_t n,
                      const pl_call_options *options);
int pl_team_reduce(pl_team *team, uint32_t root, float *x, size_t n, const pl_reduction *reduction,
                   const pl_call_options *options);

/* Rank r's part of x is [pl_team_part(n, P, r), pl_team_part(n, P, r + 1)). gather: all parts to
 * `root`; all_gather: to all; reduce_scatter: each part of all, reduced, at its rank. */
size_t pl_team_part(size_t n, uint32_t members, uint32_t rank);
int pl_team_gather(pl_team *team, uint32_t root, float *x, size_t n,
                   const pl_call_options *options);
int pl_team_all_gather(pl_team *team, float *x, size_t n, const pl_call_options *options);
int pl_team_reduce_scatter(pl_team *team, float *x, size_t n, const pl_reduction *reduction,
                           const pl_call_options *options);

/* The algorithm that the last all-reduce of this channel took; static. */
const char *pl_team_algorithm(const pl_team *team, uint32_t channel);

#ifdef __cplusplus
}
#endif
#endif
