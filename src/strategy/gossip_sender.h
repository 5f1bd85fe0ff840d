/* A gossiping member's weight, and its sender, which sends models while training continues, each
 * with a share of the sender's weight.
 *
 * A weight is a whole number of units, and is only halved, sent and added. So the sum over all
 * members and all messages under way is constant, to the last unit. When the receiver does not take
 * a message (no room, or it is dead), the weight returns to the sender; a member that dies takes
 * its weight with it.
 *
 * The sender is a task of its own, so that training never waits: it sends one message at a time,
 * and up to GOSSIP_INBOX may arrive or wait in slots. A slot belongs to the sender while it is
 * POSTED or LANDING, else to training. Training calls the functions below between two steps; they
 * do not block except where stated. Memory: 1 + GOSSIP_INBOX vectors of x and s. */
#ifndef PL_STRATEGY_GOSSIP_SENDER_H
#define PL_STRATEGY_GOSSIP_SENDER_H

#include "coll/transfer.h"
#include "strategy/strategy.h"
#include "tensor/vec.h"

enum { GOSSIP_INBOX = 2, GOSSIP_SMALL = 4 };

/* A worker's weight when it begins, in units. */
#define GOSSIP_WORKER (UINT64_C(1) << 40)

/* w ← w/2. Returns the part that was taken off; 0: there is nothing to halve. An odd unit stays. */
uint64_t gossip_halve(uint64_t *w);

/* w ← w + w_m: the share that w_m has in the sum. */
float gossip_add(uint64_t *w, uint64_t w_m);

/* The kinds of messages. */
enum gossip_kind {
    GOSSIP_MODEL,   /* x, s and w_m */
    GOSSIP_RETURN,  /* w_m: the received model is not finite */
    GOSSIP_REQUEST, /* I have lost my model: send me yours after your next step */
    GOSSIP_WANT,    /* all loops have ended: send me a copy of x, s and w */
};

enum gossip_slot { SLOT_FREE, SLOT_POSTED, SLOT_ENDED, SLOT_LANDING, SLOT_THERE };

struct gossip_message {
    _Atomic enum gossip_slot at;
    enum gossip_kind kind;
    uint32_t peer;
    uint64_t w;
    int status;        /* ended: how */
    uint64_t number;   /* there: in order of arrival */
    int64_t announced; /* there: when */
    struct vec both;   /* x, then s; n 0: no vector */
    struct transfer transfer;
};

/* Below are others' (data/loader.h). */
enum gossip_signal { SIGNAL_GOSSIP_SENDER = STRATEGY_SIGNAL_FIRST, SIGNAL_GOSSIP_NEWS };

struct gossip_sender {
    struct world *world;
    struct group *group;
    uint64_t w;
    struct gossip_message out;  /* a model */
    struct gossip_message word; /* anything else */
    struct gossip_message in[GOSSIP_INBOX];
    struct transfers transfers;
    struct transfer small[GOSSIP_SMALL], copy;
    uint64_t arrivals;
    _Atomic uint64_t returned;  /* weight that has been given back */
    _Atomic uint32_t requested; /* by this node, + 1 */
    atomic_bool lost;           /* this member's model is not finite any more */
    atomic_bool closing;        /* no more letters, please */
    atomic_bool quiet;          /* and nothing is under way */
    atomic_bool complete;       /* out.both is a copy of the final model */
    struct task *task;
};

/* Start it for models of n floats, x and s together, with one worker's weight. `p` is zeroed.
 * ERR_NOMEM */
int gossip_sender_open(struct gossip_sender *p, struct world *world, struct group *group, size_t n,
                       size_t chunk, struct arena *arena);

/* End the task, and cancel its transfers. Zeroed, or never opened: nothing to do. */
void gossip_sender_close(struct gossip_sender *p);

/* Complete the messages that have ended since the last call; weights return. true: `word` has
 * ended, with p->word.status. */
bool gossip_drain(struct gossip_sender *p);

/* Send a copy of the model and half the weight. False, and nothing happens, while the letter before
 * is still on its way, or when there is no weight to halve or the model is not finite. */
bool gossip_share(struct gossip_sender *p, uint32_t to, const struct vec *model);

/* The node that has requested this member's model, once; or WORLD_ANY. */
uint32_t gossip_requested(struct gossip_sender *p);

/* Request a member's model. false: another message is still under way. */
bool gossip_request(struct gossip_sender *p, uint32_t whom);

struct gossip_taken {
    uint32_t from;
    int64_t announced;
    size_t bytes;
};

/* Mix the oldest received model into this one. If the own model is lost, the received one replaces
 * it. false: there is none. A model that is not finite is logged, and its weight returned. */
bool gossip_take(struct gossip_sender *p, struct vec *model, struct gossip_taken *taken);

/* Wait for news of letters. OK, ERR_TIMEOUT, ERR_CANCELLED */
int gossip_await(struct gossip_sender *p, uint64_t seen, int64_t deadline);

/* Training has ended: wait until nothing is under way, mix in the received models, and from then on
 * send copies. ERR_TIMEOUT, ERR_CANCELLED, or the error that ended the sender */
int gossip_finish(struct gossip_sender *p, struct vec *model, int64_t deadline);

/* After gossip_finish: a copy of `node`'s model, into p->in[0], by transfers of the caller's own.
 * OK, or why there is none. */
int gossip_fetch(struct gossip_sender *p, struct transfers *own, uint32_t node, int64_t deadline);

#endif
