/* Transfers: point-to-point transfers of a vector with a short header, which tasks begin and
 * advance while they do other work. No two nodes run in lock step. Parameter servers, elastic
 * averaging and gossip are made of them.
 *
 * The sender's header arrives at the receiver like any message. When the receiver accepts it, it
 * posts receives for the first pieces and grants them; as pieces arrive it posts and grants more.
 * So the bytes go straight from one caller's range into the other's: nothing is copied, allocated
 * or buffered on the way, and a transfer that no receiver has accepted occupies nothing. With a
 * lossy codec, up to TRANSFER_WINDOW pieces at either end are coded and decoded in memory of the
 * transfer's. It costs a
 * round trip before the first byte and a post at either end for every piece; at most
 * TRANSFER_WINDOW pieces are in transit. A transfer to the node itself is allowed, and copied once
 * more.
 *
 * A parameter server with as many transfers at once as it has clients:
 *
 *     while ((rc = transfers_next(&ps, &group_changes, 1, deadline, &got)) == OK && got.which < 0)
 *     {
 *         struct client *c = &client[got.header ? got.header->from : got.ended->peer];
 *         if (got.header) {
 *             transfer_accept(&c->in, &ps, got.header,
 *                             &(struct transfer_in){.x = c->dx, .n = n});
 *         } else if (got.ended == &c->in && c->in.status == OK) {
 *             update(server, c->dx);
 *             memcpy(c->x, server->x, n * sizeof *c->x);
 *             transfer_send(&c->out, &ps,
 *                           &(struct transfer_out){.to = c->in.peer,
 *                                                  .lane = c->in.lane,
 *                                                  .x = c->x,
 *                                                  .n = n});
 *         }
 *     }
 *     transfers_close(&ps);
 *
 * Transfers advance inside the calls below only, and those take the time of sealing bytes: a task
 * that computes for long leaves its transfers to another task. Two nodes that each wait for the
 * other to accept wait until their deadlines. */
#ifndef PL_COLL_TRANSFER_H
#define PL_COLL_TRANSFER_H

#include "base/bytes.h"
#include "group/group.h"
#include "tensor/codec.h"
#include "world/trace.h"

enum {
    TRANSFER_CHUNK = 64 * 1024, /* floats of a piece, unless `transfers.chunk` says otherwise */
    TRANSFER_WINDOW = 8,        /* pieces of one transfer under way at once */
    TRANSFER_HEADER = 768,      /* largest header of a vector, in bytes */
    TRANSFER_HEAD = 8,          /* bytes before it: the number of floats, and the codec */
};

/* All transfers of one task. Its lane is its address: one task of a node has a lane until the end
 * of the run. Numbers of transfers are not used twice, so a late piece of a cancelled transfer is
 * never taken for another's. */
struct transfers {
    struct world *world;
    struct group *group; /* its `moved` counts bytes to and from other nodes; NULL: not counted */
    uint32_t lane;       /* 0 … 255 */
    uint32_t stripes;    /* connections to one peer over which pieces are spread; 0: one */
    size_t chunk;        /* floats of a piece, equal at both ends; 0: TRANSFER_CHUNK. A lossy codec
                            takes whole blocks */
    uint32_t view;       /* view of its headers and transfers; 0: none. May be changed */
    /* transfer.c's own: */
    uint32_t count; /* transfers sent */
    struct transfer *first;
    struct ended ended;
    uint64_t posts; /* posts made; the world counts each that has ended */
    bool full;      /* the node itself has no credit */
    uint64_t bytes; /* bytes moved whose cost was not charged yet (world->costs) */
    struct trace_sends sends;
};

/* One end of a transfer: about 1.7 KiB, zeroed before its first use. The caller leaves the range
 * alone (a sender may read it) while `status` is POST_PENDING. The struct stays in place until
 * transfers_next or transfer_finish has reported its end, or it was cancelled. It may begin another
 * transfer as soon as it has ended.
 *
 * OK             sent: accepted, and its bytes have left; received: all bytes are there
 * ERR_VIEW       its view was aborted
 * ERR_PEER       the other node is gone
 * ERR_STOP       the other side refused or cancelled it
 * ERR_CANCELLED  cancelled here, or this node is to end
 * ERR_PROTOCOL   the other side's vector has another length or codec, or it violates the protocol
 * ERR_NOMEM
 * After an error a receiver's range holds part of the vector, or part of it was added. */
struct transfer {
    int status;
    uint32_t peer; /* the other node */
    uint32_t lane; /* the lane of its task, to which a reply goes */
    size_t n;      /* floats */
    size_t chunk;  /* floats of a piece */
    /* transfer.c's own: */
    struct transfers *all; /* NULL: not begun, or ended and reported */
    struct transfer *next;
    bool sends, noted, agreed;
    uint32_t view;
    uint64_t tag; /* of piece 0 */
    char *x;
    enum codec codec;
    size_t exact;
    uint8_t *stage;     /* coded pieces, one a slot; NULL: pieces are floats */
    size_t stage_bytes; /* of one */
    void (*land)(void *user, void *at, const void *bytes, size_t n);
    void *user;
    uint32_t pieces, begun, done, granted; /* granted: number of pieces that may be sent */
    uint32_t busy;                         /* bits: posts under way */
    union {
        struct send send;
        struct recv recv;
    } slot[TRANSFER_WINDOW];
    struct send grant_send; /* a sender's header; a receiver's grant */
    struct recv grant_recv; /* a sender's: the grant; a receiver's: the cancellation */
    uint8_t grant_sent[4], grant_bytes[4], header[TRANSFER_HEAD + TRANSFER_HEADER];
    size_t header_len; /* with its TRANSFER_HEAD bytes */
};

struct transfer_out {
    uint32_t to, lane;  /* the node, and the lane of its task; the node itself is allowed */
    const float *x;     /* n floats, borrowed; NULL in sim: phantom */
    size_t n;           /* 0: the header alone */
    const void *header; /* ≤ TRANSFER_HEADER bytes, copied */
    size_t header_len;
    enum codec codec; /* x stays as it is; codec_round makes it what arrives */
    size_t exact;     /* floats at the end that travel as they are, whatever the codec */
};

struct transfer_in {
    float *x;                                                        /* NULL in sim: phantom */
    size_t n;                                                        /* must equal the header's */
    void (*land)(void *user, void *at, const void *bytes, size_t n); /* as a recv's; NULL: copies */
    void *user;
    enum codec codec; /* equal to the sender's, as is `exact`; a lossy one takes no `land` */
    size_t exact;
};

/* The event that woke a task: exactly one of a header, a transfer that has ended, and an event of
 * the task's own. */
struct transfer_wake {
    struct message *header; /* owned by the caller until it accepts or refuses it; else NULL */
    struct transfer *ended; /* reported once; the struct is free again; else NULL */
    int which;              /* index in the caller's own list; else -1 */
    struct wake wake;       /* that event, if which ≥ 0 */
};

/* ---- all transfers of a task ---- */

void transfers_init(struct transfers *ps, struct world *world, struct group *group, uint32_t lane);

/* Cancel pending transfers, and wait until the world no longer uses `ps`. */
void transfers_close(struct transfers *ps);

/* Advance all transfers, and wait for the first of: a transfer that ends, an event of the caller's
 * own (`own`: n ≤ 5, may be NULL), a header. ERR_TIMEOUT, ERR_CANCELLED, ERR_NOMEM */
int transfers_next(struct transfers *ps, const struct wait_for *own, int n, int64_t deadline,
                   struct transfer_wake *out);

/* Advance all transfers until a header arrives from `from` (or WORLD_ANY). Transfers that end
 * meanwhile keep their status, and transfers_next or transfer_finish report them. The same errors;
 * for one node also ERR_PEER (it is gone) and ERR_VIEW (ps->view was aborted). */
int transfers_await(struct transfers *ps, uint32_t from, int64_t deadline, struct message **header);

/* Advance all transfers as far as possible without waiting. ERR_CANCELLED */
int transfers_step(struct transfers *ps);

/* ---- one transfer ---- */

/* Begin to send, or to receive the vector of a header, which is consumed. Neither fails nor blocks:
 * an error becomes the transfer's status. The struct may belong to an earlier transfer that has
 * ended. */
void transfer_send(struct transfer *p, struct transfers *ps, const struct transfer_out *out);
void transfer_accept(struct transfer *p, struct transfers *ps, struct message *header,
                     const struct transfer_in *in);

/* Send a header without a vector to the lane of a task: a control message, which is no transfer and
 * needs no reply. The receiver refuses it when it has read it. Never blocks. A lost receiver is not
 * an error here. ERR_NOMEM */
int transfer_notify(struct transfers *ps, uint32_t to, uint32_t lane, const void *header,
                    size_t header_len);

/* Refuse the transfer of a header, which is consumed. */
void transfer_refuse(struct transfers *ps, struct message *header);

/* Advance all transfers until this one has ended; returns its status. ERR_TIMEOUT: it is still
 * under way. ERR_CANCELLED: also when the task was cancelled, and the transfer may still be under
 * way. */
int transfer_finish(struct transfer *p, int64_t deadline);

/* Cancel it, if it is pending, and tell the other side. Its range is not touched any more, and
 * transfers_next does not report it. */
void transfer_cancel(struct transfer *p);

/* ---- headers ---- */

/* Floats of the vector that a header announces, and the lane of its sender's task. */
size_t transfer_header_floats(const struct message *header);
enum codec transfer_header_codec(const struct message *header); /* CODECS: there is none such */
uint32_t transfer_header_lane(const struct message *header);

/* The sender's bytes: of a header that has arrived, and later of the transfer that it began. */
struct byte_reader transfer_header_reader(const struct message *header);
struct byte_reader transfer_reader(const struct transfer *p);

/* A `land` function: adds the received floats to the range. */
void transfer_add(void *user, void *at, const void *bytes, size_t n);

#endif
