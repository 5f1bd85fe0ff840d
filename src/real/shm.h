/* Bytes through memory that two processes of one host share: a ring each way. The connecting side
 * makes the memory, a sealed file without a name, and offers it in its hello; the accepting side
 * finds it through /proc, maps it, and accepts when it reads there the nonce that the hello has; it
 * puts one of its own there for its answer. So each knows that the other is at the same memory, in
 * whatever namespaces the two are. Nothing is left of it when both are gone, however they went. */
#ifndef PL_REAL_SHM_H
#define PL_REAL_SHM_H

#include "real/byte_ring.h"
#include "real/frame.h"
#include "real/stream.h"

enum { SHM_RING_BYTES = 2 * 1024 * 1024, SHM_PAGE = 4096 };

/* The shared memory. */
struct segment {
    uint8_t nonce[2][HELLO_NONCE]; /* of the connecting side, of the accepting side */
    struct ring_ends ends[2];      /* to the accepting side, to the connecting side */
    _Alignas(SHM_PAGE) uint8_t bytes[2][SHM_RING_BYTES];
};

/* Connecting side: put an offer into the hello, if this can be. */
void shm_offer(struct stream *s, struct hello *hello);
/* The answer to it: the stream continues through shared memory, or does not. ERR_PROTOCOL */
int shm_answered(struct stream *s, const struct hello *answer);

/* Accepting side: take the offer, if there is one and this can be, and put that into the answer.
 * The stream is to continue so when the answer has been sent: shm_begin. */
void shm_accept(struct stream *s, const struct hello *hello, struct hello *answer);
void shm_begin(struct stream *s);

#endif
