/* A ring of bytes in memory that two processes share: one writes, the other reads. Each side keeps
 * its own place in memory of its own and only publishes it; what the other side publishes is read
 * once and believed within bounds. The bytes in the ring may change while they are read: a reader
 * copies the bytes that it checks.
 *
 * A side that goes to sleep says so and looks once more; the other side, when it has moved, looks
 * whether somebody sleeps. All four are sequentially consistent: one of the two sees. */
#ifndef PL_REAL_BYTE_RING_H
#define PL_REAL_BYTE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "places are shared between processes");

/* In the shared memory, a cache line a side. */
struct ring_ends {
    _Alignas(64) _Atomic uint32_t written; /* bytes since the beginning, modulo 2³²; the writer's */
    _Atomic uint32_t wants_room;           /* the writer sleeps until half of the ring is free */
    _Alignas(64) _Atomic uint32_t read;    /* the reader's */
    _Atomic uint32_t wants_bytes;          /* the reader sleeps until there are bytes */
};

struct ring {
    struct ring_ends *ends;
    uint8_t *bytes;
    uint32_t size; /* a power of two */
    uint32_t at;   /* this side's position */
};

/* Writer: put as many bytes as there is room for; -1: the reader's position is invalid. *wake: the
 * reader sleeps and must be woken. */
ptrdiff_t ring_put(struct ring *r, const struct iovec *part, size_t parts, bool *wake);
/* At least half is free. Also true when the reader's position is invalid: ring_put reports that. */
bool ring_has_room(const struct ring *r);
void ring_want_room(struct ring *r);

/* Reader: the bytes that lie contiguously in the ring, and their number; -1: the writer's position
 * is invalid. */
ptrdiff_t ring_peek(const struct ring *r, const uint8_t **bytes);
/* The first n of them are done with. true: the writer sleeps, and is to be woken. */
bool ring_consume(struct ring *r, uint32_t n);
bool ring_has_bytes(const struct ring *r);
void ring_want_bytes(struct ring *r);

#endif
