/* The catalogue of messages, and the bits of a message's tag. docs/PROTOCOL.md describes their use.
 *
 *   63      56 55      48 47                16 15         0
 *   +---------+----------+--------------------+------------+
 *   |  kind   |   lane   |  exchange number   |   piece    |
 *   +---------+----------+--------------------+------------+
 *
 * Control messages have lane, number and piece 0 and travel in view 0: the group numbers them
 * itself. The exchange number is its low 32 bits. */
#ifndef PL_WIRE_CATALOGUE_H
#define PL_WIRE_CATALOGUE_H

#include <stdbool.h>
#include <stdint.h>

#define WIRE_VERSION 20

/*        name            sent by → to       what */
#define WIRE_KINDS(X)                                                                              \
    X(HELLO, "hello")     /* worker → driver: machine, release, hashes of job and data */        \
    X(WELCOME, "welcome") /* driver → worker: the job, and hashes of the data */                 \
    X(REFUSED, "refused") /* driver → worker: the reason why it cannot join */                   \
    X(CONNECT_CHECK, "connect_check")   /* worker → driver: its address, to be tested */         \
    X(CONNECT_RESULT, "connect_result") /* driver → worker: reachable? addresses to test */      \
    X(VIEW, "view")                     /* driver → members: a new view */                       \
    X(HEARTBEAT, "heartbeat")           /* member → driver: alive, and its progress */           \
    X(LOST, "lost") /* member → driver: its connection to another member broke */                \
    X(ADMIT_JOINER, "admit_joiner")   /* driver → donor: admit this joiner; or: it is gone */    \
    X(DONOR_READY, "donor_ready")     /* donor → driver: it waits at a step boundary */          \
    X(JOIN_COMPLETE, "join_complete") /* joiner → driver: it has all of its state */             \
    X(PART, "part")       /* driver → member: leave; it may become a standby worker */           \
    X(LEAVE, "leave")     /* member → driver: it leaves, and waits to be disconnected */         \
    X(LANE_AT, "lane_at") /* member → driver: the last exchange that it completed in a lane */   \
    X(LANE_GO, "lane_go") /* driver → members: the result that counts, and its holder */         \
    X(LINK_CHECK, "link_check")   /* member → driver: check; driver → members: report */       \
    X(LINK_REPORT, "link_report") /* member → driver: how fast its link is */                    \
    X(LEAF_READY, "leaf_ready")   /* leaf → driver: its link is fast enough */                   \
    X(COMMITTED, "committed")     /* member → driver: an exchange, or steps, and their cost */   \
    X(STOP, "stop")               /* driver → members: vote to end */                            \
    X(DONE, "done")               /* member → driver: its loop has ended */                      \
    X(WANT_MODEL, "want_model")   /* driver → member: send the model; back: a part */            \
    X(BYE, "bye")                 /* driver → members: the run is over */                        \
    X(EVENT, "event")             /* a node to itself: a line for events.jsonl */                  \
    X(REDUCE, "reduce")           /* member → member: an exchange, towards the root */           \
    X(BROADCAST, "broadcast")     /* member → member: an exchange, from the root */              \
    X(RESULT, "result")           /* holder → member: a result that the member lacks */          \
    X(PROBE, "probe")             /* member → member: measures a link */                         \
    X(SHARED_REQUEST, "shared_request") /* member → driver: shared variables */                  \
    X(SHARED_REPORT, "shared_report")   /* driver → member: shared variables */                  \
    X(MODEL, "model")                   /* node → node: a model, or a part of one */             \
    X(TRANSFER, "transfer")             /* node → node: the header and the chunks of a vector */ \
    X(TRANSFER_GO, "transfer_go")       /* receiver → sender: chunks that may come, or none */   \
    X(TRACE, "trace")                   /* worker → driver: spans of its time */                 \
    X(KV_REQUEST, "kv_request")         /* node → driver: it holds a value, or looks for one */  \
    X(KV_REPLY, "kv_reply")             /* driver → node: recorded; or the holders of a value */ \
    X(KV_FETCH, "kv_fetch")             /* node → holder: a request for a piece */               \
    X(KV_PIECE, "kv_piece")             /* holder → node: a piece of a value */                  \
    X(KV_GONE, "kv_gone")               /* holder → node: it does not send the piece */          \
    X(BEAT, "beat")       /* driver → members: alive, and totals of departed members */          \
    X(RETURN, "return")   /* member → recovered driver: its view and its recovery report */      \
    X(REJOIN, "rejoin")   /* driver → worker: discard the state, and join as a new worker */     \
    X(LEASE, "lease")     /* driver → worker: a grant of samples */                              \
    X(SHARE, "share")     /* driver → worker: the ranges of its own records to train on */       \
    X(OPENING, "opening") /* node → node: progress with opening the data */                      \
    X(BAD_RECORD, "bad_record") /* worker → driver: a bad record that it skipped */              \
    X(REJECTED, "rejected")     /* server → driver: a worker's push that did not count */

enum wire_kind {
    WIRE_NONE,
#define WIRE_ENUM(name, text) WIRE_##name,
    WIRE_KINDS(WIRE_ENUM)
#undef WIRE_ENUM
        WIRE_KIND_COUNT
};

#define WIRE_KIND_MASK UINT64_C(0xff00000000000000)
#define WIRE_HEADER_PIECE \
    0xffffu /* the piece number of a vector's header; vectors have fewer
                                     pieces */

static inline uint64_t wire_tag(enum wire_kind kind, uint32_t lane, uint64_t n, uint32_t piece)
{
    return (uint64_t)kind << 56 | (uint64_t)(lane & 0xff) << 48 | (n & 0xffffffff) << 16 |
           (piece & 0xffff);
}

static inline enum wire_kind wire_kind_of(uint64_t tag)
{
    uint64_t kind = tag >> 56;
    return kind < WIRE_KIND_COUNT ? (enum wire_kind)kind : WIRE_NONE;
}

/* "reduce", for logs and for the delays of a cluster file; "?" for no kind. */
const char *wire_kind_name(enum wire_kind kind);

/* The kind of that name, or WIRE_NONE. */
enum wire_kind wire_kind_find(const char *name);

#endif
