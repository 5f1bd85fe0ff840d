/* The centre of elastic averaging: the driver's part of `easgd` where workers come when they like.
 * A worker asks by a transfer's note alone, which is refused, since nothing comes with it; the
 * answer is x̃ and s̃ as they are. A worker's update is added whole. It is dropped when its worker
 * dies before it has arrived, or when it is not finite. Memory: one vector a worker, made when it
 * first comes.
 *
 * A driver that returns has no centre any more. Every reconnected worker offers the centre that it
 * fetched last. When all have, the driver takes the newest, and replies again to workers that
 * request it. Of what a worker has given the last may not be in it. Each answer says so: it names
 * the workers of whom an odd number of gifts is decided, and since a worker fetches between two, so
 * that the newest copy has all of them but perhaps the last, one bit is enough. Nor does the centre
 * end before those gifts are in, or their workers gone: by what they say with their offers it knows
 * of whom it lacks one. */
#ifndef PL_STRATEGY_CENTRE_H
#define PL_STRATEGY_CENTRE_H

#include "coll/transfer.h"
#include "strategy/strategy.h"

/* Lanes of transfers: of the centre and of workers that visit it; of what workers give. */
enum centre_lane { CENTRE_LANE_VISIT, CENTRE_LANE_UPDATE };

/* Contents of the transfers' headers:
 *   ASK    worker → centre   send me x̃ and s̃, if you are the driver of incarnation `number`
 *   GIVE   worker → centre   the vector is d, the `number`th of mine
 *   MODEL  centre → worker   the vector is x̃, s̃ of that `version`: so many gifts have come
 *   OFFER  worker → centre   the vector, if there is one, is what MODEL has brought last; `number`
 *                            gifts of mine have been under way */
enum centre_op { CENTRE_REQUEST = 1, CENTRE_UPDATE, CENTRE_MODEL, CENTRE_OFFER };

struct centre_message {
    enum centre_op op;
    uint64_t number, version;
    struct members parity; /* MODEL, OFFER: of whom an odd number of gifts is decided */
};

enum { CENTRE_MESSAGE = 24 + 8 * MEMBER_WORDS };
_Static_assert((int)CENTRE_MESSAGE <= (int)TRANSFER_HEADER, "it fits a note");

size_t centre_message_encode(const struct centre_message *message, uint8_t out[CENTRE_MESSAGE]);

/* ERR_PROTOCOL */
int centre_message_decode(struct byte_reader in, struct centre_message *out);

/* A vector travels as x, then s; these are its two parts, of which x has n floats. */
static inline struct vec centre_x(const struct vec *both, size_t n)
{
    return (struct vec){both->at, n};
}

static inline struct vec centre_s(const struct vec *both, size_t n)
{
    return (struct vec){both->at + n, both->n - n};
}

/* Keep l->x and l->s as the centre until l->finish, and until all that was given is in. A driver
 * that has returned (l->lanes.blank) first takes them from who has the newest; ERR_PEER: all are
 * gone before it had. */
int centre_run(struct driver_part *l);

#endif
