/* The centre of elastic averaging: the driver's part of `easgd` with asynchronous workers. A worker
 * requests the centre by a transfer's header without a vector, which the centre refuses; the reply
 * is the current x̃ and s̃. A worker's update is added whole. It is dropped if its worker dies
 * before it has arrived, or if it is not finite. Memory: one vector a worker, made at its first
 * message.
 *
 * A recovered driver has no centre. Every reconnected worker offers the centre that it fetched
 * last. When all have, the driver takes the newest, and replies to requests again. This copy may
 * lack the last update of a worker. Each reply shows whether it does: it names the workers with an
 * odd number of decided updates. Since a worker fetches between two updates, the newest copy lacks
 * at most its last one, so one bit is enough. The centre does not end before these updates have
 * arrived, or their workers are lost: the offers state the number of updates sent, from which it
 * knows the missing ones. */
#ifndef PL_STRATEGY_CENTRE_H
#define PL_STRATEGY_CENTRE_H

#include "coll/transfer.h"
#include "strategy/strategy.h"

/* Lanes of transfers: for requests and replies; for updates. */
enum centre_lane { CENTRE_LANE_VISIT, CENTRE_LANE_UPDATE };

/* The headers of transfers:
 *   REQUEST  worker → centre   send x̃ and s̃, if you are the driver of incarnation `number`
 *   UPDATE   worker → centre   the vector is d, the sender's `number`th
 *   MODEL    centre → worker   the vector is x̃, s̃ after `version` updates
 *   OFFER    worker → centre   the vector, if there is one, is that of the last MODEL; the sender
 *                              has sent `number` updates
 */
enum centre_op { CENTRE_REQUEST = 1, CENTRE_UPDATE, CENTRE_MODEL, CENTRE_OFFER };

struct centre_message {
    enum centre_op op;
    uint64_t number, version;
    struct members parity; /* MODEL, OFFER: workers with an odd number of decided updates */
};

enum { CENTRE_MESSAGE = 24 + 8 * MEMBER_WORDS };
_Static_assert((int)CENTRE_MESSAGE <= (int)TRANSFER_HEADER, "it fits a header");

size_t centre_message_encode(const struct centre_message *message, uint8_t out[CENTRE_MESSAGE]);

/* ERR_PROTOCOL */
int centre_message_decode(struct byte_reader in, struct centre_message *out);

/* A vector is sent as x, then s; these are its two parts, of which x has n floats. */
static inline struct vec centre_x(const struct vec *both, size_t n)
{
    return (struct vec){both->at, n};
}

static inline struct vec centre_s(const struct vec *both, size_t n)
{
    return (struct vec){both->at + n, both->n - n};
}

/* Keep l->x and l->s as the centre until l->finish, and until all updates have arrived. A recovered
 * driver (l->lanes.needs_sync) first takes them from the worker with the newest copy; ERR_PEER: all
 * workers were lost before. */
int centre_run(struct driver_part *l);

#endif
