/* Transfers: vectors on their way from one node to another, with a small note, begun and looked
 * after by tasks that do other things too. Nobody walks in lock step: this is what parameter
 * servers, elastic averaging and gossip are made of.
 *
 * The sender's note comes in at the receiver like any message. When the receiver accepts it, it
 * posts receives for the first pieces and says go; as pieces land it posts for more. So the bytes
 * leave one caller's range and land in the other's, nothing on the way is copied, allocated or
 * buffered, and a transfer that nobody has accepted is in nobody's way. It costs a round trip
 * before the first byte and a post at either end for every 256 KiB; at most TRANSFER_WINDOW pieces
 * are under way. A transfer to the node itself is allowed, and copied once more.
 *
 * A parameter server, for one (and as many at once as there are clients):
 *
 *     while ((rc = transfers_next(&ps, &group_changes, 1, deadline, &got)) == OK && got.which < 0)
 *     {
 *         struct client *c = &client[got.note ? got.note->from : got.ended->peer];
 *         if (got.note) {
 *             transfer_accept(&c->in, &ps, got.note, &(struct transfer_in){.x = c->dx, .n = n});
 *         } else if (got.ended == &c->in && c->in.status == OK) {
 *             update(server, c->dx);
 *             memcpy(c->x, server->x, n * sizeof *c->x);
 *             transfer_send(&c->out, &ps, &(struct transfer_out){.to = c->in.peer, .lane =
 *             c->in.lane,
 *                                                            .x = c->x, .n = n});
 *         }
 *     }
 *     transfers_close(&ps);
 *
 * Nothing moves but inside the calls below, and where sealing bytes costs time they take it: a task
 * that computes for long leaves its transfers to another. Two who each wait for the other to accept
 * wait until their deadline. */
#ifndef PL_COLL_TRANSFER_H
#define PL_COLL_TRANSFER_H

#include "base/bytes.h"
#include "group/group.h"
#include "world/trace.h"

enum {
    TRANSFER_CHUNK = 64 * 1024, /* floats of a piece, unless `transfers.chunk` says otherwise */
    TRANSFER_WINDOW = 8,        /* pieces of one transfer under way at once */
    TRANSFER_HEADER = 256,      /* largest header of a vector, in bytes */
    TRANSFER_HEAD = 8,          /* and before them: the number of floats */
};

/* All transfers of one task. Its lane is its address: of a node's tasks, one has a lane, and has it
 * until the end of the run (numbers of transfers are not used twice, so that what is left of one
 * that was cancelled is never taken for another). */
struct transfers {
    struct world *world;
    struct group *group; /* whose `moved` counts bytes to and from other nodes; NULL: nobody's */
    uint32_t lane;       /* 0 … 255 */
    uint32_t stripes;    /* connections to one peer that pieces are spread over; 0: one */
    size_t chunk;        /* floats of a piece, equal at both ends; 0: TRANSFER_CHUNK */
    uint32_t view;       /* that notes come in and transfers go out in; 0: none. May be changed */
    /* transfer.c's own: */
    uint32_t count; /* transfers sent */
    struct transfer *first;
    struct ended ended;
    uint64_t posts; /* handed to the world, which counts each when it has ended */
    bool full;      /* no credit at the node itself */
    uint64_t bytes; /* moved, and not yet paid for (world->costs) */
    struct trace_sends sends;
};

/* One transfer, at either end: about 1.2 KiB, zeroed before its first use. The range is not touched
 * (of a sender: not changed) while `status` is POST_PENDING. The struct stays where it is until the
 * end has been told, by transfers_next or transfer_finish, or the transfer has been cancelled; as
 * soon as it has ended it may be begun again.
 *
 * OK             sent: it was accepted and its bytes have left; received: all bytes are there
 * ERR_VIEW       its view was aborted
 * ERR_PEER       the other node is gone
 * ERR_STOP       the other side refused or cancelled it
 * ERR_CANCELLED  cancelled here; or this node is to end
 * ERR_PROTOCOL   the other side's vector is of another length, or it does not keep to the rules
 * ERR_NOMEM
 * After an error the range of a receiver holds part of the vector, or has had part of it added. */
struct transfer {
    int status;
    uint32_t peer; /* the other node */
    uint32_t lane; /* and the lane of its task: where an answer goes */
    size_t n;      /* floats */
    size_t chunk;  /* of which so many travel in a piece */
    /* transfer.c's own: */
    struct transfers *all; /* NULL: not begun, or over and told */
    struct transfer *next;
    bool sends, noted, agreed;
    uint32_t view;
    uint64_t tag; /* of piece 0 */
    char *x;
    void (*land)(void *user, void *at, const void *bytes, size_t n);
    void *user;
    uint32_t pieces, begun, done, granted; /* granted: the first so many may come */
    uint32_t busy;                         /* bits: which of these posts are under way */
    union {
        struct send send;
        struct recv recv;
    } slot[TRANSFER_WINDOW];
    struct send grant_send; /* a sender's note; a receiver's go */
    struct recv grant_recv; /* a sender's go; of a receiver: that the sender has cancelled */
    uint8_t grant_sent[4], grant_bytes[4], header[TRANSFER_HEAD + TRANSFER_HEADER];
    size_t header_len; /* with its head */
};

struct transfer_out {
    uint32_t to, lane;  /* the node, and the lane of its task; the node itself is allowed */
    const float *x;     /* n floats, borrowed; NULL in sim: phantom */
    size_t n;           /* 0: a note alone */
    const void *header; /* ≤ TRANSFER_HEADER bytes, copied */
    size_t header_len;
};

struct transfer_in {
    float *x;                                                        /* NULL in sim: phantom */
    size_t n;                                                        /* what the note must say */
    void (*land)(void *user, void *at, const void *bytes, size_t n); /* as a recv's; NULL: copies */
    void *user;
};

/* The event that woke a task: exactly one of a header, a transfer that has ended, or an event of
 * the task's own. */
struct transfer_wake {
    struct message *header; /* owned, until it is accepted or refused; else NULL */
    struct transfer *ended; /* told once, and the struct is free; else NULL */
    int which;              /* index in the caller's own list; else -1 */
    struct wake wake;       /* with it, if which ≥ 0 */
};

/* ---- all of a task's ---- */

void transfers_init(struct transfers *ps, struct world *world, struct group *group, uint32_t lane);

/* Cancel those that are pending and wait until the world is done with `ps`. */
void transfers_close(struct transfers *ps);

/* Move all on, and wait for what comes first: a transfer that ends, what the caller waits for
 * besides (`own`: n ≤ 5, may be NULL), a note. ERR_TIMEOUT, ERR_CANCELLED, ERR_NOMEM */
int transfers_next(struct transfers *ps, const struct wait_for *own, int n, int64_t deadline,
                   struct transfer_wake *out);

/* The same for scripts: move all on until there is a note from `from` (or WORLD_ANY). Transfers
 * that end meanwhile have their status, and are told by transfers_next or transfer_finish. The same
 * errors, and of one node ERR_PEER (it is gone) and ERR_VIEW (ps->view has been aborted). */
int transfers_await(struct transfers *ps, uint32_t from, int64_t deadline, struct message **header);

/* Move all on as far as they go now. Waits for nobody. ERR_CANCELLED */
int transfers_step(struct transfers *ps);

/* ---- one ---- */

/* Begin to send, or to receive what a note (taken) is about. Neither fails nor blocks: what goes
 * wrong is the transfer's status. The struct may be of an earlier transfer that has ended. */
void transfer_send(struct transfer *p, struct transfers *ps, const struct transfer_out *out);
void transfer_accept(struct transfer *p, struct transfers *ps, struct message *header,
                     const struct transfer_in *in);

/* Let the sender know that its transfer (its note, taken) is not wanted. */
void transfer_refuse(struct transfers *ps, struct message *header);

/* Move all on until this one has ended: its status. ERR_TIMEOUT: it is still under way. Where it is
 * the task that was cancelled, ERR_CANCELLED, and it may be under way as well. */
int transfer_finish(struct transfer *p, int64_t deadline);

/* Take it back, if it is pending, and let the other side know: nobody touches the range any more.
 * It is not told by transfers_next. */
void transfer_cancel(struct transfer *p);

/* ---- notes ---- */

/* Floats of the vector that a note is about, and the lane of its sender's task. */
size_t transfer_header_floats(const struct message *header);
uint32_t transfer_header_lane(const struct message *header);

/* The sender's bytes: of a note that has come in, and later of the transfer that it began. */
struct byte_reader transfer_header_reader(const struct message *header);
struct byte_reader transfer_reader(const struct transfer *p);

/* A `land`: adds what comes in to what is there. */
void transfer_add(void *user, void *at, const void *bytes, size_t n);

#endif
