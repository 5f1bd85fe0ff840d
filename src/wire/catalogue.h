/* The catalogue of messages: what nodes say to each other, and the bits of a message's tag.
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

#define WIRE_VERSION 4

/*        name            sent by → to       what */
#define WIRE_KINDS(X)                                                                             \
    X(HELLO, "hello")                   /* worker → driver: who I am, what I have */            \
    X(WELCOME, "welcome")               /* driver → worker: the job */                          \
    X(REFUSED, "refused")               /* driver → worker: why you cannot join */              \
    X(CONNECT_CHECK, "connect_check")   /* worker → driver: I listen there; does that work? */  \
    X(CONNECT_RESULT, "connect_result") /* driver → worker: yes, or why not; try those */       \
    X(VIEW, "view")                     /* driver → members: a new membership */                \
    X(HEARTBEAT, "heartbeat")           /* member → driver: alive, and how far */               \
    X(LOST, "lost")                     /* member → driver: my link to another member broke */  \
    X(ADMIT_JOINER, "admit_joiner")     /* driver → member: let that one in; or: it is gone */  \
    X(DONOR_READY, "donor_ready") /* member → driver: it may come in now, before I continue */  \
    X(JOIN_COMPLETE, "join_complete") /* joiner → driver: I have what my donor had for me */    \
    X(PART, "part")                   /* driver → member: leave; you may stand by */            \
    X(LEAVE, "leave")                 /* member → driver: I go, and wait for your goodbye */    \
    X(LANE_AT, "lane_at")       /* member → driver: the last exchange I completed in a lane */  \
    X(LANE_GO, "lane_go")       /* driver → members: what to adopt or redo */                   \
    X(COMMITTED, "committed")   /* member → driver: an exchange, and what it cost me */         \
    X(STOP, "stop")             /* driver → members: vote to end */                             \
    X(DONE, "done")             /* member → driver: my loop has ended */                        \
    X(WANT_MODEL, "want_model") /* driver → member: your model; back: a part of the first */    \
    X(BYE, "bye")               /* driver → members: the run is over */                         \
    X(EVENT, "event")           /* a node to itself: a line for events.jsonl */                   \
    X(REDUCE, "reduce")         /* an exchange, towards the root */                               \
    X(BROADCAST, "broadcast")   /* an exchange, from the root */                                  \
    X(RESULT, "result")         /* a member's kept result, to one that lacks it */                \
    X(PROBE, "probe")           /* to measure the way with */                                     \
    X(SHARED_REQUEST, "shared_request") /* member → driver: about shared variables */           \
    X(SHARED_REPORT, "shared_report")   /* driver → member: about shared variables */           \
    X(MODEL, "model")                   /* a copy of a model, to who evaluates it */              \
    X(TRANSFER, "transfer")       /* a vector that one node sends another: its note and pieces */ \
    X(TRANSFER_GO, "transfer_go") /* how much of a transfer may come; or: no more of it */        \
    X(TRACE, "trace")             /* worker → driver: where its time went */                    \
    X(KV_REQUEST, "kv_request")   /* node → driver: about values: I hold one, or want one */    \
    X(KV_REPLY, "kv_reply")       /* driver → node: it is in the book, or who holds it */       \
    X(KV_FETCH, "kv_fetch")       /* node → holder: send me a piece */                          \
    X(KV_PIECE, "kv_piece")       /* holder → node: a piece of a value */                       \
    X(KV_GONE, "kv_gone")         /* holder → node: I do not send it */                         \
    X(BEAT, "beat")               /* driver → members: alive, and what others have done */      \
    X(RETURN, "return")           /* member → a driver that has returned: what I have */        \
    X(REJOIN, "rejoin")           /* driver → worker: forget what you have, and come again */   \
    X(LEASE, "lease")             /* driver → worker: records that you go over next */          \
    X(OPENING, "opening")         /* node → node: alive, and opening my data: how far */        \
    X(BAD_RECORD, "bad_record")   /* worker → driver: a broken record that I left out */

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
