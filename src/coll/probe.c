#include "coll/probe.h"

#include "coll/coll_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PINGS = 8,
    PING_BYTES = 64,
    BULKS = 2, /* a message alone, then some one after another */
    FEW_ROUNDS = 16,
    TRIAL_BYTES = 64 * 1024,
    TRIAL_GROWTH = 4,
    TRIAL_PIECE = PINGS + BULKS, /* of a trial, and then of the size that follows from it */
    SIZE_PIECE,
};

#define FASTEST       1e-12f               /* s/byte, for transfers too fast to measure */
#define PROBE_NUMBERS UINT64_C(0x80000000) /* apart from the exchange's own */

/* The circle method: the last of an even number stays, the others move round it. */
size_t probe_rounds(size_t ranks)
{
    return ranks < 2 ? 0 : (ranks + 1) / 2 * 2 - 1;
}

size_t probe_partner(size_t ranks, size_t rank, size_t round)
{
    size_t even = (ranks + 1) / 2 * 2, turning = even - 1;
    size_t partner;
    if (rank == turning)
        partner = round % turning * (even / 2) % turning;
    else if (2 * rank % turning == round % turning)
        partner = turning;
    else
        partner = (round % turning + turning - rank) % turning;
    return partner < ranks ? partner : rank;
}

struct pair {
    struct coll *c;
    size_t partner;
    uint8_t *bytes; /* room for PROBE_BYTES */
};

static uint64_t probe_tag(const struct coll *c, uint32_t piece)
{
    return wire_tag(WIRE_PROBE, c->lane, c->n, piece);
}

static int send_probe(const struct pair *p, size_t len, uint32_t piece)
{
    return coll_send(p->c, p->partner, probe_tag(p->c, piece), p->bytes, len);
}

static int recv_probe(const struct pair *p, size_t len, uint32_t piece)
{
    return coll_recv(p->c, p->partner, probe_tag(p->c, piece), p->bytes, len);
}

/* A round trip; the beginning rank measures twice the latency. */
static int there_and_back(const struct pair *p, bool begins, size_t len, size_t messages,
                          uint32_t piece, double *seconds)
{
    struct world *world = p->c->group->world;
    int64_t start = world_now(world);
    int rc = OK;
    for (int way = 0; rc == OK && way < 2; way++)
        for (size_t i = 0; rc == OK && i < messages; i++)
            rc = (way == 0) == begins ? send_probe(p, len, piece) : recv_probe(p, len, piece);
    *seconds = world_seconds(world_now(world) - start) / 2;
    return rc;
}

/* On a slow link: the size of bulk messages that takes about `limit_s` one way. Trials grow, since
 * a token bucket lets a short one pass as if the link were fast. The rank that begins decides. */
static int choose_size(const struct pair *p, bool begins, double limit_s, size_t *size)
{
    uint64_t next = TRIAL_BYTES;
    int rc = OK;
    do {
        double seconds;
        *size = (size_t)next;
        rc = there_and_back(p, begins, *size, 1, TRIAL_PIECE, &seconds);
        if (begins && *size < PROBE_BYTES && TRIAL_GROWTH * seconds < limit_s)
            next *= TRIAL_GROWTH;
        memcpy(p->bytes, &next, sizeof next);
        if (rc == OK)
            rc = begins ? send_probe(p, sizeof next, SIZE_PIECE)
                        : recv_probe(p, sizeof next, SIZE_PIECE);
        memcpy(&next, p->bytes, sizeof next);
        if (rc == OK && next != *size && (next != *size * TRIAL_GROWTH || next > PROBE_BYTES))
            rc = ERR_PROTOCOL;
    } while (rc == OK && next > *size);
    return rc;
}

/* The time that further messages add to that of one: the first bytes of both, which a token bucket
 * lets pass at once, must not count. A link is not faster than its whole transfer was, or one
 * message alone that waits for a processor would make it so. */
static double seconds_per_byte(double alone_s, double all_s, size_t size, size_t messages,
                               double latency_s)
{
    double added = (all_s - alone_s) / (double)(size * (messages - 1));
    double whole = (all_s - latency_s) / (double)(size * messages);
    return added > whole ? added : whole;
}

/* Both of a pair go through the same messages; the lower rank's clock counts. On a busy host a ping
 * waits for a processor, more or less each time: the shortest counts. cell: latency, s/byte */
static int probe_pair(const struct pair *p, size_t messages, double limit_s, float *cell)
{
    size_t size = PROBE_BYTES;
    bool begins = p->c->ranks->me < p->partner;
    double seconds, latency = HUGE_VAL, bulk[BULKS] = {0};
    int rc = OK;
    for (uint32_t i = 0; rc == OK && i < PINGS; i++) {
        rc = there_and_back(p, begins, PING_BYTES, 1, i, &seconds);
        latency = seconds < latency ? seconds : latency;
    }
    if (rc == OK && limit_s > 0) /* both are here: their links are free */
        rc = choose_size(p, begins, limit_s, &size);
    for (uint32_t i = 0; rc == OK && i < BULKS; i++)
        rc = there_and_back(p, begins, size, i == 0 ? 1 : messages, PINGS + i, &bulk[i]);
    double byte_s = seconds_per_byte(bulk[0], bulk[1], size, messages, latency);
    cell[0] = (float)latency;
    cell[1] = byte_s > 0 ? (float)byte_s : FASTEST;
    return rc;
}

/* Rows of (latency, seconds a byte) by pair, from all to all. */
static int share_rows(struct coll *c, float *rows)
{
    size_t P = c->ranks->count, *cut = malloc((P + 1) * sizeof *cut);
    struct schedule schedule = {0};
    struct coll_plan plan = {0};
    const struct coll_config config = {.chunk = WORLD_MESSAGE_MAX / sizeof(float)};
    int rc = cut ? OK : ERR_NOMEM;
    for (size_t i = 0; rc == OK && i <= P; i++)
        cut[i] = 2 * P * i;
    if (rc == OK)
        rc = schedule_all_gather(&schedule, P, c->ranks->me, 2 * P * P, cut);
    if (rc == OK)
        rc = coll_plan_make(&plan, &schedule, &config);
    if (rc == OK)
        rc = coll_run(c, &plan, rows, (struct coll_owed){0});
    coll_plan_release(&plan);
    schedule_release(&schedule);
    free(cut);
    return rc;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* A rank's link is as fast as its best pair; the latency is the median of the pairs. */
static void sum_up(size_t P, float *rows, struct probe *out)
{
    size_t pairs = 0;
    out->ranks = P;
    out->alone = true;
    for (size_t i = 0; i < P; i++) /* each rank's own report */
        out->alone = out->alone && rows[2 * (P * i + i)] == 0;
    for (size_t i = 0; i < P; i++)
        out->rate[i] = 0;
    for (size_t i = 0; i < P; i++)
        for (size_t j = i + 1; j < P; j++) {
            double rate = 1 / (double)rows[2 * (P * i + j) + 1];
            out->rate[i] = rate > out->rate[i] ? rate : out->rate[i];
            out->rate[j] = rate > out->rate[j] ? rate : out->rate[j];
        }
    for (size_t i = 0; i < P; i++) /* the rows have been read: latencies to the front */
        for (size_t j = i + 1; j < P; j++)
            rows[pairs++] = rows[2 * (P * i + j)];
    qsort(rows, pairs, sizeof *rows, compare_floats);
    out->latency = pairs ? (double)rows[pairs / 2] : 0;
}

static int probe_all(struct coll *c, double limit_s, float *rows, uint8_t *bytes)
{
    size_t P = c->ranks->count, me = c->ranks->me, rounds = probe_rounds(P);
    size_t messages = rounds < FEW_ROUNDS ? PROBE_MESSAGES : PROBE_MESSAGES - 1;
    for (size_t round = 0; round < rounds; round++) {
        struct pair p = {c, probe_partner(P, me, round), bytes};
        if (p.partner == me)
            continue;
        int rc = probe_pair(&p, messages, limit_s, rows + 2 * (P * me + p.partner));
        if (rc != OK)
            return rc;
    }
    return OK;
}

int probe_links(struct coll *c, double limit_s, struct probe *out)
{
    struct group *group = c->group;
    size_t P = c->ranks->count;
    float *rows = calloc(2 * P * P, sizeof *rows);
    uint8_t *bytes = calloc(1, PROBE_BYTES);
    struct coll own = *c;
    own.n = PROBE_NUMBERS | c->n;
    own.waits = NULL;
    uint64_t moved = atomic_load(&group->moved);
    bool alone = atomic_fetch_add(&group->collectives, 1) == 0;
    int rc = rows && bytes ? probe_all(&own, limit_s, rows, bytes) : ERR_NOMEM;
    alone = alone && atomic_load(&group->collectives) == 1 && atomic_load(&group->moved) == moved;
    if (rc == OK) {
        rows[2 * (P * c->ranks->me + c->ranks->me)] = !alone;
        rc = share_rows(&own, rows);
    }
    atomic_fetch_sub(&group->collectives, 1);
    if (rc == OK)
        sum_up(P, rows, out);
    free(bytes);
    free(rows);
    return rc;
}
