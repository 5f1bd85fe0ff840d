/* Leases: the stream of records (epoch after epoch; place p is place p mod N of epoch p / N) is
 * handed out in ranges of places, each to one node at a time. The lease table says which node holds
 * which range. Ranges that a node leaves undone go into a pool, from which requests are granted
 * first. The first leases of a run are new, since no node requests them (lease_grant_first). Pure:
 * no messages, no clock, memory of a fixed size.
 *
 * Every place below `frontier` is in one of four states, and there is no other:
 *
 *     frontier = used + held + pooled + lost
 *
 *   used     a node has gone over it and said so
 *   held     in a lease, and nobody has said yet that it is done
 *   pooled   was in a lease, and will be in another
 *   lost     nobody knows who had it, or whether it was done; it is not handed out again
 *
 * A place is doubtful when a node may have gone over it and could not say so: it died, or the run
 * resumes from a checkpoint that was written meanwhile. When it is used after all, it has perhaps
 * been trained on twice, and is counted as `repeated`, too. */
#ifndef PL_DATA_LEASE_H
#define PL_DATA_LEASE_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LEASE_NODES_MAX = 1024, LEASE_HELD_MAX = 4, LEASE_POOL_MAX = 4096 };

/* No place that anybody says is above it: there is room to hand out more for ever. */
#define LEASE_OFFSET_MAX (UINT64_MAX / 2)

/* Places [from, to). */
struct lease {
    uint64_t from, to;
    bool doubtful;
};

struct lease_holder {
    bool here;
    uint64_t taken, repeated; /* records since it came: of its leases, and gone over again */
    size_t count;
    struct lease held[LEASE_HELD_MAX]; /* in the order that it takes them */
};

struct lease_table {
    uint64_t grain; /* records of a step: each lease is a whole number of them */
    uint64_t frontier, used, lost, repeated;
    size_t pooled;
    struct lease pool[LEASE_POOL_MAX]; /* ascending, and apart from each other */
    uint32_t nodes;                    /* the highest that has been here, and 1 */
    struct lease_holder holder[LEASE_NODES_MAX];
};

/* How many records a node asks for that takes `step_s` seconds for a step of `grain` records: what
 * keeps it busy for about LEASE_SECONDS, within LEASE_STEPS_MIN and _MAX (where steps are long, all
 * eight of them are doubtful when it dies), but no more than its share of an epoch of `records`
 * among `workers`. step_s 0: it does not know yet. At least two steps, of which it takes one while
 * it waits for more. */
enum { LEASE_SECONDS = 2, LEASE_STEPS_LEAST = 2, LEASE_STEPS_MIN = 8, LEASE_STEPS_MAX = 256 };
uint64_t lease_size(double step_s, uint64_t grain, uint64_t records, size_t workers);

/* An empty book: all below `frontier` is used, but for `lost` places. False: there cannot be so
 * many, and the book is not opened. */
bool lease_open(struct lease_table *table, uint64_t frontier, uint64_t lost, uint64_t grain);

/* `node` is here, and holds nothing. Nothing if it is here already. */
void lease_add_node(struct lease_table *table, uint32_t node);

/* Hand out about `want` records to a node that is here, out of the pool first: 1 to LEASE_HELD_MAX
 * leases, whose number is returned; 0: it holds as many as it can. */
size_t lease_grant(struct lease_table *table, uint32_t node, uint64_t want,
                   struct lease given[LEASE_HELD_MAX]);

/* The same for the very first lease of a node, which it knows without being told: `size` (a whole
 * number of steps) new records. */
void lease_grant_first(struct lease_table *table, uint32_t node, uint64_t size);

/* The node has gone over `taken` records of its leases since it came, in their order, and over
 * `again` once more, since no other lease had come (data/lease_cursor.h): these are repeated. A
 * report that is older than the node's last one, exceeds its leases, or comes from an absent node,
 * changes nothing. */
void lease_report_use(struct lease_table *table, uint32_t node, uint64_t taken, uint64_t repeated);

/* The node goes, and has said how far it is: the rest is as good as new. */
void lease_node_leaves(struct lease_table *table, uint32_t node);

/* The node is dead: the rest is doubtful. */
void lease_node_dies(struct lease_table *table, uint32_t node);

/* A driver has returned, and rebuilds its book from that of a checkpoint. Each node that is back
 * says what it holds (count ≤ LEASE_HELD_MAX) and where the highest lease ends that it has ever
 * had; its further words count from `taken` and `again` on. False: that cannot be true (not whole
 * steps, above LEASE_OFFSET_MAX, or another holds some of it), and the node is here with nothing.
 * When all have said so, the book learns how much is used and repeated in all; what is in neither
 * is lost. */
bool lease_node_reconnects(struct lease_table *table, uint32_t node,
                           const struct lease_holder *report, uint64_t high);
void lease_finish_recovery(struct lease_table *table, uint64_t used, uint64_t repeated);

/* Records in leases, and in the pool. */
uint64_t lease_held(const struct lease_table *table);
uint64_t lease_pooled(const struct lease_table *table);

/* Is every place owned once, and does the sum of above hold? For tests, and who looks on. */
bool lease_adds_up(const struct lease_table *table);

/* The table's part of a checkpoint, as one line of text: `FRONTIER LOST REPEATED`, then each range
 * that is not used, `FROM-TO`, with a `?` behind it where it is doubtful. All that is held is. */
void lease_write(const struct lease_table *table, struct buf *out);

/* A table that starts with such a line, without holders: ranges are in the pool, cut to whole steps
 * of `grain`; the remainders are lost. False: it cannot be read, and the book is not to be used. */
bool lease_read(struct lease_table *table, const char *text, uint64_t grain);

#endif
