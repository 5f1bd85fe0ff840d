/* All limits of what travels between nodes: lengths, counts, numbers of nodes, and names. A sender
 * asserts them, since it makes its messages itself; a receiver refuses what exceeds them, before it
 * takes memory. wire/wire_rules.h has the length of each kind of message. The limits of a
 * connection, before its messages count, are in real/frame.h, real/peer.h and real/io.h. */
#ifndef PL_WIRE_WIRE_LIMITS_H
#define PL_WIRE_WIRE_LIMITS_H

#include "base/err.h"
#include "base/release.h"

#include <stdint.h>

enum {
    /* Nodes: workers have the numbers 0 … VIEW_MEMBERS_MAX − 1. */
    VIEW_MEMBERS_MAX = 1024,
    MEMBER_WORDS = VIEW_MEMBERS_MAX / 64,
    ROSTER_LANES_MAX = 32, /* lanes of exchanges */
    PS_SHARDS_MAX = 250,   /* of parameter servers: each has a lane of transfers */

    /* Names and texts, with their final zero. ERR_TEXT_MAX and RELEASE_MAX are base's. */
    NODE_ADDRESS_MAX = 64,
    WORKER_HOST_MAX = 64,
    WORKER_STAGE_MAX = 32,
    HELLO_TEXT_MAX = 32,
    HELLO_CPU_MAX = 64,
    HELLO_PATH_MAX = 200,
    HELLO_KIND_MAX = 80,
    TASKS_KEY_MAX = 64,
    KV_KEY_MAX = 63, /* without the zero; printable ASCII without blanks */

    /* Counts in a message. */
    HELLO_CORES_MAX = 1 << 20,
    HOLDINGS_MAX = 256,    /* of a worker's records */
    JOIN_STATE_WORDS = 24, /* of a strategy's state, to a joiner */
    GROUP_REPORT = 64,     /* words of a recovery report, */
    GROUP_TOTALS = 4,      /* and of a beat */
    TASKS_MAX = 16384,     /* tasks of a shared variable, */
    TASKS_VARS_MAX = 256,  /* and variables */
    KV_LOCATIONS = 8,      /* holders that a reply names */

    /* Bytes of a message's data. WORLD_MESSAGE_MAX is that of any. */
    WIRE_WORDS_MAX = 64,         /* a few numbers */
    WIRE_TEXT_MAX = 4096,        /* numbers and texts */
    WIRE_REPORT_MAX = 64 * 1024, /* a hello, a report, ranges */
    WIRE_VIEW_MAX = 128 * 1024,  /* the members of a view, with their addresses */
    KV_PIECE = 256 * 1024,       /* a piece of a value */
};

#define TASKS_FLOATS_MAX UINT64_C(1000000000) /* of a shared variable */
#define KV_VALUE_MAX     (UINT64_C(4) << 30)  /* bytes of a value */

#endif
