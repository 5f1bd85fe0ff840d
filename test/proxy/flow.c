#define _GNU_SOURCE
#include "proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { CHUNK_BYTES = 16 * 1024, BURST_NS = 2000000 };

struct chunk {
    struct chunk *next;
    int64_t release_at;
    size_t len, sent;
    uint8_t bytes[CHUNK_BYTES];
};

static void corrupt_chunk(struct chunk *c, uint64_t every, struct lane *lane)
{
    for (size_t i = 0; every && i < c->len; i++) {
        if ((lane->bytes + i + 1) % every)
            continue;
        c->bytes[i] ^= 0x10;
        lane->broken++;
    }
    lane->bytes += c->len;
}

static void append_chunk(struct flow *flow, struct chunk *c)
{
    c->next = NULL;
    c->sent = 0;
    if (flow->last)
        flow->last->next = c;
    else
        flow->first = c;
    flow->last = c;
    flow->queued += c->len;
}

enum flow_result flow_fill(struct flow *flow, int fd, const struct fault *fault, struct lane *lane,
                           int64_t now)
{
    while (!flow->ended && flow->queued < FLOW_BYTES_MAX) {
        struct chunk *c = malloc(sizeof *c);
        if (!c)
            return FLOW_BROKEN;
        ssize_t n = recv(fd, c->bytes, sizeof c->bytes, MSG_DONTWAIT);
        if (n <= 0) {
            free(c);
            flow->ended = n == 0;
            bool none = n < 0 && (errno == EAGAIN || errno == EINTR);
            return n == 0 || none ? FLOW_WAITS : FLOW_BROKEN;
        }
        c->len = (size_t)n;
        c->release_at = now + fault->delay;
        corrupt_chunk(c, fault->corrupt_every, lane);
        append_chunk(flow, c);
    }
    return FLOW_WAITS;
}

static void take_sooner(int64_t *next, int64_t at)
{
    *next = at < *next ? at : *next;
}

/* The number of bytes that the link delivers now. */
static void take_link(struct lane *lane, double mbit, size_t n, int64_t now)
{
    int64_t from = lane->free_at > now - BURST_NS ? lane->free_at : now - BURST_NS;
    lane->free_at = from + (int64_t)((double)n * 8e3 / mbit);
}

enum flow_result flow_drain(struct flow *flow, int fd, const struct fault *fault, struct lane *lane,
                            int64_t now, int64_t *next)
{
    for (struct chunk *c; (c = flow->first);) {
        if (c->release_at > now || (fault->mbit > 0 && lane->free_at > now)) {
            take_sooner(next, c->release_at > now ? c->release_at : lane->free_at);
            return FLOW_WAITS;
        }
        ssize_t n = send(fd, c->bytes + c->sent, c->len - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? FLOW_BLOCKED : FLOW_BROKEN;
        if (fault->mbit > 0)
            take_link(lane, fault->mbit, (size_t)n, now);
        c->sent += (size_t)n;
        flow->queued -= (size_t)n;
        if (c->sent < c->len)
            continue;
        flow->first = c->next;
        if (!flow->first)
            flow->last = NULL;
        free(c);
    }
    if (flow->ended && !flow->shut) {
        flow->shut = true;
        shutdown(fd, SHUT_WR);
    }
    return FLOW_WAITS;
}

void flow_release(struct flow *flow)
{
    for (struct chunk *c = flow->first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *flow = (struct flow){.ended = true, .shut = true};
}
