#include "real/byte_ring.h"

#include <string.h>

enum { PUBLISH_BYTES = 64 * 1024 }; /* so that the other side begins while we continue */

/* true: the other side sleeps, and this call must wake it. */
static bool claim_sleeper(_Atomic uint32_t *wants)
{
    return atomic_load(wants) != 0 && atomic_exchange(wants, 0) != 0;
}

/* ---- writer ---- */

static uint32_t in_ring(const struct ring *r)
{
    return r->at - atomic_load(&r->ends->read);
}

static void put_bytes(struct ring *r, const uint8_t *from, uint32_t n)
{
    uint32_t at = r->at & (r->size - 1), first = n < r->size - at ? n : r->size - at;
    memcpy(r->bytes + at, from, first);
    memcpy(r->bytes, from + first, n - first);
    r->at += n;
}

ptrdiff_t ring_put(struct ring *r, const struct iovec *part, size_t parts, bool *wake)
{
    uint32_t used = in_ring(r), published = r->at, begun = r->at;
    if (used > r->size)
        return -1;
    uint32_t room = r->size - used;
    *wake = false;
    for (size_t i = 0; i < parts && room > 0; i++)
        for (size_t done = 0; done < part[i].iov_len && room > 0;) {
            size_t rest = part[i].iov_len - done;
            uint32_t n = rest < PUBLISH_BYTES ? (uint32_t)rest : PUBLISH_BYTES;
            n = n < room ? n : room;
            put_bytes(r, (const uint8_t *)part[i].iov_base + done, n);
            done += n;
            room -= n;
            if (r->at - published >= PUBLISH_BYTES) {
                published = r->at;
                atomic_store_explicit(&r->ends->written, published, memory_order_release);
            }
        }
    atomic_store(&r->ends->written, r->at);
    *wake = r->at != begun && claim_sleeper(&r->ends->wants_bytes);
    return (ptrdiff_t)(r->at - begun);
}

bool ring_has_room(const struct ring *r)
{
    uint32_t used = in_ring(r);
    return used <= r->size / 2 || used > r->size;
}

void ring_want_room(struct ring *r)
{
    atomic_store(&r->ends->wants_room, 1);
}

/* ---- reader ---- */

static uint32_t to_read(const struct ring *r)
{
    return atomic_load(&r->ends->written) - r->at;
}

ptrdiff_t ring_peek(const struct ring *r, const uint8_t **bytes)
{
    uint32_t n = to_read(r), at = r->at & (r->size - 1);
    if (n > r->size)
        return -1;
    *bytes = r->bytes + at;
    return n < r->size - at ? n : r->size - at;
}

bool ring_consume(struct ring *r, uint32_t n)
{
    r->at += n;
    atomic_store(&r->ends->read, r->at);
    if (atomic_load_explicit(&r->ends->wants_bytes, memory_order_relaxed))
        atomic_store_explicit(&r->ends->wants_bytes, 0, memory_order_relaxed); /* we are awake */
    return to_read(r) <= r->size / 2 && claim_sleeper(&r->ends->wants_room);
}

bool ring_has_bytes(const struct ring *r)
{
    return to_read(r) != 0;
}

void ring_want_bytes(struct ring *r)
{
    atomic_store(&r->ends->wants_bytes, 1);
}
