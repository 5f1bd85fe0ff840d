/* Leases: the stream of samples (epoch after epoch; offset p is sample p mod N of epoch p / N) is
 * granted in ranges of offsets, each to one node at a time. The lease table records the holder of
 * each range. Ranges that a node leaves unused go into a pool, from which requests are granted
 * first. The first leases of a run are new, since no node requests them (lease_grant_first). Pure:
 * no messages, no clock, memory of a fixed size.
 *
 * Every offset below `frontier` is in exactly one of four states (L1):
 *
 *     frontier = used + held + pooled + lost
 *
 *   used     a node has trained on it and reported that
 *   held     in a lease, and not reported as used
 *   pooled   was in a lease, and will be granted again
 *   lost     its holder or its use is unknown; it is not granted again
 *
 * An offset is doubtful when a node may have trained on it without a report: the node died, or the
 * run resumes from a checkpoint that was written meanwhile. When it is used after all, it may have
 * been trained on twice, and counts as `repeated`, too. */
#ifndef PL_DATA_LEASE_H
#define PL_DATA_LEASE_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LEASE_NODES_MAX = 1024, LEASE_HELD_MAX = 4, LEASE_POOL_MAX = 4096 };

/* No reported offset may be above it, so that the table can grant for ever. */
#define LEASE_OFFSET_MAX (UINT64_MAX / 2)

/* Sample offsets [from, to). */
struct lease {
    uint64_t from, to;
    bool doubtful;
};

struct lease_holder {
    bool here;
    uint64_t taken, repeated; /* samples since it joined: of its leases, and repeated */
    size_t count;
    struct lease held[LEASE_HELD_MAX]; /* in the order in which it trains on them */
};

struct lease_table {
    uint64_t grain; /* samples of a step, or 1 where these differ; each lease is a multiple of it */
    uint64_t most;  /* samples of a grant, at most; 0: of LEASE_STEPS_MAX steps of `grain` */
    uint64_t frontier, used, lost, repeated;
    size_t pooled;
    struct lease pool[LEASE_POOL_MAX]; /* ascending and not adjacent, unless one is doubtful */
    uint32_t nodes;                    /* highest node number so far, plus 1 */
    struct lease_holder holder[LEASE_NODES_MAX];
};

/* Samples to request for a node that takes `step_s` seconds for a step of `grain` samples: work for
 * about LEASE_SECONDS, between LEASE_STEPS_MIN and LEASE_STEPS_MAX steps, and at most its share of
 * an epoch of `records` among `workers`. step_s 0: unknown yet. The minimum of eight steps bounds
 * the doubtful samples of a death. At least two steps: the node trains on one while it waits for
 * the next grant. */
enum { LEASE_SECONDS = 2, LEASE_STEPS_LEAST = 2, LEASE_STEPS_MIN = 8, LEASE_STEPS_MAX = 256 };
uint64_t lease_size(double step_s, uint64_t grain, uint64_t records, size_t workers);

/* Open a table without holders: all offsets below `frontier` are used, except `lost` ones. false:
 * the numbers are impossible, and the table is not opened. */
bool lease_open(struct lease_table *table, uint64_t frontier, uint64_t lost, uint64_t grain);

/* Add `node`, which holds no lease. No effect if the table has it already. */
void lease_add_node(struct lease_table *table, uint32_t node);

/* Grant about `want` samples to a known node (L3), from the pool first. Returns the number of
 * leases, 1 to LEASE_HELD_MAX; 0: the node holds as many as it can. */
size_t lease_grant(struct lease_table *table, uint32_t node, uint64_t want,
                   struct lease given[LEASE_HELD_MAX]);

/* Record the first lease of a node, which computes it itself: `size` new samples, a whole number of
 * steps. */
void lease_grant_first(struct lease_table *table, uint32_t node, uint64_t size);

/* The node reports its totals since it joined: `taken` samples of its leases, in their order, and
 * `repeated` ones that it trained on again because no lease had arrived (data/lease_cursor.h). A
 * report that is older than the last one, exceeds its leases, or comes from an unknown node changes
 * nothing (L2). */
void lease_report_use(struct lease_table *table, uint32_t node, uint64_t taken, uint64_t repeated);

/* The node leaves after its last report: the rest of its leases returns to the pool as unused. */
void lease_node_leaves(struct lease_table *table, uint32_t node);

/* The node has died: the rest of its leases returns to the pool as doubtful. */
void lease_node_dies(struct lease_table *table, uint32_t node);

/* Driver recovery: rebuild the table from that of a checkpoint. Each reconnected node reports its
 * leases (count ≤ LEASE_HELD_MAX) and `high`, the end of the highest lease that it ever had; its
 * later reports count from `taken` and `repeated` on. false: the report is impossible (not whole
 * steps, above LEASE_OFFSET_MAX, or leases of another node), and the node is added without leases.
 * After all reports, lease_finish_recovery sets the samples used and repeated in all; the remaining
 * offsets are lost. */
bool lease_node_reconnects(struct lease_table *table, uint32_t node,
                           const struct lease_holder *report, uint64_t high);
void lease_finish_recovery(struct lease_table *table, uint64_t used, uint64_t repeated);

/* Samples in leases, and in the pool. */
uint64_t lease_held(const struct lease_table *table);
uint64_t lease_pooled(const struct lease_table *table);

/* Does every offset have one owner, and does the sum above hold (L1)? For tests and observers;
 * costs the square of the number of leases. */
bool lease_adds_up(const struct lease_table *table);

/* Write the table for a checkpoint, as one line of text: `FRONTIER LOST REPEATED`, then each unused
 * range as `FROM-TO`, with a `?` behind a doubtful one. Held ranges are doubtful. */
void lease_write(const struct lease_table *table, struct buf *out);

/* Read such a line into a table without holders. The ranges go to the pool, cut to whole steps of
 * `grain`; remainders are lost. false: the line is invalid, and the table must not be used. */
bool lease_read(struct lease_table *table, const char *text, uint64_t grain);

#endif
