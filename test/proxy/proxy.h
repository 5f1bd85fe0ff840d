/* The effects of a faulty network on a connection, as the proxy has them (proxy.c): bytes of one
 * direction, each due at a time, at a rate, some of them changed, or held back for as long as the
 * fault lasts. */
#ifndef PL_PROXY_PROXY_H
#define PL_PROXY_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The side that connects, and the one that is connected to. Bytes from `client` go up. */
enum side { CLIENT, TARGET, SIDES };

/* The faults of a route at this moment, in either direction. All zero: nothing. */
struct fault {
    int64_t delay;          /* ns that each byte takes */
    double mbit;            /* of each direction, all connections together; 0: no limit */
    uint64_t corrupt_every; /* one bit of every nth byte of a direction; 0: none */
    bool held[SIDES];       /* bytes from that side are held */
};

/* One direction of a route. */
struct lane {
    int64_t free_at;        /* when the sent bytes have crossed a link of that rate */
    uint64_t bytes, broken; /* received; changed */
};

struct chunk;

/* Bytes of one connection on their way in one direction, in order. */
struct flow {
    struct chunk *first, *last;
    size_t queued;
    bool ended, shut; /* its stream has ended; the other side was informed */
};

enum { FLOW_BYTES_MAX = 4 << 20 };

enum flow_result { FLOW_WAITS, FLOW_BLOCKED, FLOW_BROKEN };

/* Read the available bytes at `fd`, as far as there is room. FLOW_WAITS, FLOW_BROKEN */
enum flow_result flow_fill(struct flow *flow, int fd, const struct fault *fault, struct lane *lane,
                           int64_t now);

/* Send the bytes that are due. FLOW_WAITS: for bytes, or until *next, which is only ever lowered;
 * FLOW_BLOCKED: until `fd` takes more; FLOW_BROKEN */
enum flow_result flow_drain(struct flow *flow, int fd, const struct fault *fault, struct lane *lane,
                            int64_t now, int64_t *next);

void flow_release(struct flow *flow);

#endif
