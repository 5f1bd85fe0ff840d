/* Stories that nodes play with transfers, in either world: node i of 0 … STORY_NODES-1 runs the
 * story with a world of its own, all at the same time, and stays until all have finished. */
#ifndef PL_LIB_TRANSFER_STORIES_H
#define PL_LIB_TRANSFER_STORIES_H

#include "base/rng.h"
#include "coll/transfer.h"
#include "sweep_stride.h"
#include "tensor/codec.h"
#include "wire/catalogue.h"
#include "world/world_test_suite.h"

enum { STORY_NODES = 3, PIECE = TRANSFER_CHUNK, EDGE = 8, STORM = 8 };

/* Every so many floats of a range are looked at: a sanitizer takes minutes over all of them. Odd,
 * so that they are at different places of the pieces. */
enum { FLOAT_STEP = SWEEP_STRIDE(17, 5) };

/* A range between guard values that must not change; whole numbers, so that sums are exact. */
struct range {
    size_t n;
    float *all, *x;
};

static inline float edge_value(size_t i)
{
    return -1.5f - (float)i;
}

static inline int range_new(struct range *r, size_t n, float value)
{
    *r = (struct range){.n = n, .all = malloc((n + 2 * EDGE) * sizeof(float))};
    if (!r->all)
        return ERR_NOMEM;
    r->x = r->all + EDGE;
    for (size_t i = 0; i < EDGE; i++)
        r->all[i] = r->x[n + i] = edge_value(i);
    for (size_t i = 0; i < n; i++)
        r->x[i] = value;
    return OK;
}

static inline float value_of(uint32_t from, size_t k, size_t i)
{
    return (float)((from * 1009 + k * 31 + i) % 8191);
}

static inline void range_fill(struct range *r, uint32_t from, size_t k)
{
    for (size_t i = 0; i < r->n; i += FLOAT_STEP)
        r->x[i] = value_of(from, k, i);
}

/* Does it hold the k-th vector of `from`, `times` times? */
static inline bool range_is(const struct range *r, uint32_t from, size_t k, size_t times)
{
    for (size_t i = 0; i < EDGE; i++)
        if (r->all[i] != edge_value(i) || r->x[r->n + i] != edge_value(i))
            return false;
    for (size_t i = 0; i < r->n; i += FLOAT_STEP)
        if (r->x[i] != (float)times * value_of(from, k, i))
            return false;
    return true;
}

static inline bool expect_untouched(struct world *w, struct range *r)
{
    for (size_t i = 0; i < r->n; i += FLOAT_STEP)
        r->x[i] = -1;
    bool none = world_sleep(w, world_now(w) + SUITE_MOMENT / 10) == OK;
    for (size_t i = 0; i < r->n; i += FLOAT_STEP)
        none &= r->x[i] == -1;
    return none;
}

static inline void ranges_free(struct range *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(r[i].all);
}

static inline int64_t story_until(struct world *w)
{
    return world_now(w) + 4 * SUITE_PATIENCE;
}

static inline void send_range(struct transfer *p, struct transfers *ps, uint32_t to, uint32_t lane,
                              const struct range *r)
{
    transfer_send(p, ps, &(struct transfer_out){.to = to, .lane = lane, .x = r->x, .n = r->n});
}

/* ---- lengths and notes: between two, both ways at once ---- */

static const size_t story_length[] = {0,         1,         PIECE - 1,     PIECE,
                                      PIECE + 1, 2 * PIECE, 8 * PIECE + 7, 10 * PIECE + 3};

enum { LENGTHS_KNOWN = sizeof story_length / sizeof *story_length };

static inline size_t story_header_len(size_t k)
{
    return k == LENGTHS_KNOWN - 1 ? TRANSFER_HEADER : 4 * k;
}

static inline bool story_header_is(struct byte_reader header, uint32_t from, size_t k)
{
    const uint8_t *b = byte_reader_take(&header, story_header_len(k));
    for (size_t i = 0; b && i < story_header_len(k); i++)
        if (b[i] != (uint8_t)(from + k + i))
            return false;
    return b && byte_reader_done(&header);
}

static inline int story_lengths_by(struct world *w, size_t chunk)
{
    struct transfers ps;
    struct transfer out[LENGTHS_KNOWN] = {0}, in[LENGTHS_KNOWN] = {0};
    struct range from[LENGTHS_KNOWN], into[LENGTHS_KNOWN];
    struct group counted = {.world = w};
    uint32_t other = 1 - w->self;
    size_t floats = 0;
    if (w->self > 1)
        return suite_part(w, STORY_NODES);
    transfers_init(&ps, w, &counted, 7);
    ps.chunk = chunk;
    for (size_t k = 0; k < LENGTHS_KNOWN; k++) {
        uint8_t header[TRANSFER_HEADER];
        size_t n = story_length[k];
        CHECK(range_new(&from[k], n, 0) == OK && range_new(&into[k], n, 0) == OK);
        range_fill(&from[k], w->self, k);
        for (size_t i = 0; i < story_header_len(k); i++)
            header[i] = (uint8_t)(w->self + k + i);
        transfer_send(&out[k], &ps,
                      &(struct transfer_out){.to = other,
                                             .lane = 7,
                                             .x = from[k].x,
                                             .n = n,
                                             .header = header,
                                             .header_len = story_header_len(k)});
        memset(header, 0xee, sizeof header); /* it has been copied */
        floats += n;
        CHECK(out[k].pieces == (n + (chunk ? chunk : PIECE) - 1) / (chunk ? chunk : PIECE));
    }
    for (size_t k = 0; k < LENGTHS_KNOWN; k++) {
        struct message *header;
        CHECK(transfers_await(&ps, other, story_until(w), &header) == OK);
        CHECK(header->from == other && transfer_header_lane(header) == 7);
        CHECK(transfer_header_floats(header) == story_length[k]);
        CHECK(story_header_is(transfer_header_reader(header), other, k));
        transfer_accept(&in[k], &ps, header, &(struct transfer_in){.x = into[k].x, .n = into[k].n});
    }
    for (size_t k = 0; k < LENGTHS_KNOWN; k++) {
        CHECK(transfer_finish(&out[k], story_until(w)) == OK);
        CHECK(transfer_finish(&in[k], story_until(w)) == OK);
        CHECK(transfer_finish(&in[k], 0) == OK); /* it stays so */
        CHECK(in[k].peer == other && in[k].lane == 7 && in[k].n == story_length[k]);
        CHECK(story_header_is(transfer_reader(&in[k]), other, k));
        CHECK(range_is(&into[k], other, k, 1) && range_is(&from[k], w->self, k, 1));
    }
    CHECK(counted.moved == 2 * floats * sizeof(float));
    transfers_close(&ps);
    ranges_free(from, LENGTHS_KNOWN), ranges_free(into, LENGTHS_KNOWN);
    return suite_part(w, STORY_NODES);
}

/* ---- lossy codecs: the values that codec_round makes, and exact ones behind them ---- */

enum { CODED = 12, CODED_FLOATS = 3 * CODEC_TOPK_BLOCK + 777 };

static inline enum codec coded_codec(size_t k)
{
    return (enum codec)(k % CODECS);
}

static inline size_t coded_exact(size_t k)
{
    return k < 4 ? 0 : k < 8 ? 5000 : CODED_FLOATS;
}

static inline bool coded_is(const struct range *r, const struct range *sent, size_t k)
{
    size_t coded = CODED_FLOATS - coded_exact(k);
    codec_round(coded_codec(k), sent->x, coded);
    return memcmp(r->x, sent->x, CODED_FLOATS * sizeof(float)) == 0 &&
           r->x[r->n] == edge_value(0) && r->x[-1] == edge_value(EDGE - 1);
}

/* Each waits for the other's vector with the codec that both know; of the last, with another. */
static inline int story_coded(struct world *w)
{
    struct transfers ps;
    struct transfer out[CODED] = {0}, in[CODED] = {0};
    struct range from[CODED], into[CODED];
    uint32_t other = 1 - w->self;
    if (w->self > 1)
        return suite_part(w, STORY_NODES);
    transfers_init(&ps, w, NULL, 7);
    ps.chunk = 100;
    for (size_t k = 0; k < CODED; k++) {
        CHECK(range_new(&from[k], CODED_FLOATS, 0) == OK);
        CHECK(range_new(&into[k], CODED_FLOATS, 0) == OK);
        for (size_t i = 0; i < CODED_FLOATS; i++)
            from[k].x[i] = rng_normal(other, k, i);
        transfer_send(&out[k], &ps,
                      &(struct transfer_out){.to = other,
                                             .lane = 7,
                                             .x = from[k].x,
                                             .n = CODED_FLOATS,
                                             .codec = coded_codec(k),
                                             .exact = coded_exact(k)});
    }
    for (size_t k = 0; k < CODED; k++) {
        struct message *header;
        CHECK(transfers_await(&ps, other, story_until(w), &header) == OK);
        CHECK(transfer_header_floats(header) == CODED_FLOATS);
        CHECK(transfer_header_codec(header) == coded_codec(k));
        transfer_accept(&in[k], &ps, header,
                        &(struct transfer_in){.x = into[k].x,
                                              .n = CODED_FLOATS,
                                              .codec = coded_codec(k + (k + 1 == CODED)),
                                              .exact = coded_exact(k)});
    }
    for (size_t k = 0; k < CODED; k++) {
        bool last = k + 1 == CODED;
        CHECK(transfer_finish(&in[k], story_until(w)) == (last ? ERR_PROTOCOL : OK));
        CHECK(transfer_finish(&out[k], story_until(w)) == (last ? ERR_STOP : OK));
        for (size_t i = 0; i < CODED_FLOATS; i++)
            from[k].x[i] = rng_normal(w->self, k, i);
        CHECK(last || coded_is(&into[k], &from[k], k));
    }
    transfers_close(&ps);
    ranges_free(from, CODED), ranges_free(into, CODED);
    return suite_part(w, STORY_NODES);
}

static inline int story_lengths(struct world *w)
{
    return story_lengths_by(w, 0);
}

static inline int story_pieces(struct world *w)
{
    return story_lengths_by(w, 1000);
}

/* ---- headers without a vector, to the other and to itself ---- */

enum { NOTICES = 5 };

static inline int story_notices(struct world *w)
{
    struct transfers ps;
    uint32_t to[2] = {1 - w->self, w->self};
    if (w->self > 1)
        return suite_part(w, STORY_NODES);
    transfers_init(&ps, w, NULL, 7);
    for (uint8_t k = 0; k < NOTICES; k++)
        for (int i = 0; i < 2; i++)
            CHECK(transfer_notify(&ps, to[i], 7, (uint8_t[]){k, (uint8_t)w->self}, 2) == OK);
    for (int i = 0; i < 2; i++)
        for (uint8_t k = 0; k < NOTICES; k++) {
            struct message *header;
            CHECK(transfers_await(&ps, to[i], story_until(w), &header) == OK);
            struct byte_reader bytes = transfer_header_reader(header);
            CHECK(header->from == to[i] && transfer_header_lane(header) == 7);
            CHECK(read_u8(&bytes) == k && read_u8(&bytes) == to[i] && byte_reader_done(&bytes));
            transfer_refuse(&ps, header);
        }
    transfers_close(&ps);
    return suite_part(w, STORY_NODES);
}

/* ---- one adds up what all others send, several of each at once, into the same range ---- */

enum { ADDED = 6, ADDED_FLOATS = 3 * PIECE + 5 };

static inline int story_add_up(struct world *w, struct transfers *ps)
{
    struct transfer in[(STORY_NODES - 1) * ADDED] = {0};
    const size_t all = (STORY_NODES - 1) * ADDED;
    struct range sum;
    size_t begun = 0, ended = 0;
    CHECK(range_new(&sum, ADDED_FLOATS, 0) == OK);
    while (ended < all) {
        struct transfer_wake got;
        CHECK(transfers_next(ps, NULL, 0, story_until(w), &got) == OK);
        CHECK((got.header != NULL) + (got.ended != NULL) == 1 && got.which == -1);
        if (got.header)
            transfer_accept(&in[begun++], ps, got.header,
                            &(struct transfer_in){.x = sum.x, .n = sum.n, .land = transfer_add});
        else
            CHECK(++ended && got.ended->status == OK);
    }
    CHECK(begun == all && range_is(&sum, 5, 0, all));
    ranges_free(&sum, 1);
    return OK;
}

static inline int story_add(struct world *w)
{
    struct transfers ps;
    struct transfer out[ADDED] = {0};
    struct range x;
    transfers_init(&ps, w, NULL, 0);
    if (w->self == 0) {
        int rc = story_add_up(w, &ps);
        transfers_close(&ps);
        return rc == OK ? suite_part(w, STORY_NODES) : rc;
    }
    CHECK(range_new(&x, ADDED_FLOATS, 0) == OK);
    range_fill(&x, 5, 0); /* all send the same */
    for (size_t k = 0; k < ADDED; k++)
        transfer_send(&out[k], &ps, &(struct transfer_out){.x = x.x, .n = x.n});
    for (size_t k = 0; k < ADDED; k++)
        CHECK(transfer_finish(&out[ADDED - 1 - k], story_until(w)) == OK);
    transfers_close(&ps);
    ranges_free(&x, 1);
    return suite_part(w, STORY_NODES);
}

/* ---- a storm: everybody to anybody, itself too, accepted late and in any order ---- */

struct storm {
    struct world *w;
    uint32_t nodes;
    uint64_t seed, draws;
    struct transfers ps;
    struct transfer out[STORM], in[STORM * 8];
    struct range from[STORM], into[STORM * 8];
    struct message *held[STORM * 8];
    size_t sent, over, holds, begun, received, expected;
};

static inline uint32_t storm_to(const struct storm *s, uint32_t from, size_t k)
{
    return (uint32_t)rng_below(s->seed, from, k, s->nodes);
}

static inline size_t storm_floats(const struct storm *s, uint32_t from, size_t k)
{
    return story_length[rng_below(s->seed, 100 + from, k, LENGTHS_KNOWN)];
}

/* All nodes know the unwanted senders. */
static inline bool storm_unwanted(const struct storm *s, uint32_t from, size_t k)
{
    return rng_below(s->seed, 200 + from, k, 8) == 0;
}

static inline uint32_t storm_dice(struct storm *s, uint32_t below)
{
    return (uint32_t)rng_below(s->seed, 300 + s->w->self, s->draws++, below);
}

static inline int storm_send(struct storm *s)
{
    size_t k = s->sent++;
    uint8_t number = (uint8_t)k;
    CHECK(range_new(&s->from[k], storm_floats(s, s->w->self, k), 0) == OK);
    range_fill(&s->from[k], s->w->self, k);
    transfer_send(&s->out[k], &s->ps,
                  &(struct transfer_out){.to = storm_to(s, s->w->self, k),
                                         .lane = 3,
                                         .x = s->from[k].x,
                                         .n = s->from[k].n,
                                         .header = &number,
                                         .header_len = 1});
    return OK;
}

static inline int storm_accept(struct storm *s)
{
    size_t i = storm_dice(s, (uint32_t)s->holds);
    struct message *header = s->held[i];
    struct byte_reader cut = transfer_header_reader(header);
    size_t k = read_u8(&cut), n = transfer_header_floats(header);
    s->held[i] = s->held[--s->holds];
    CHECK(k < STORM && storm_to(s, header->from, k) == s->w->self);
    CHECK(n == storm_floats(s, header->from, k));
    if (storm_unwanted(s, header->from, k)) {
        transfer_refuse(&s->ps, header);
        s->received++;
        return OK;
    }
    CHECK(range_new(&s->into[s->begun], n, 0) == OK);
    transfer_accept(&s->in[s->begun], &s->ps, header,
                    &(struct transfer_in){.x = s->into[s->begun].x, .n = n});
    s->begun++;
    return OK;
}

static inline int storm_ended(struct storm *s, const struct transfer *p)
{
    if (p >= s->out && p < s->out + STORM) {
        size_t k = (size_t)(p - s->out);
        CHECK(p->status == (storm_unwanted(s, s->w->self, k) ? ERR_STOP : OK));
        CHECK(range_is(&s->from[k], s->w->self, k, 1));
        s->over++;
    } else {
        struct byte_reader cut = transfer_reader(p);
        CHECK(p->status == OK);
        CHECK(range_is(&s->into[p - s->in], p->peer, read_u8(&cut), 1));
        s->received++;
    }
    return OK;
}

static inline int storm_blow(struct storm *s)
{
    while (s->over < STORM || s->received < s->expected) {
        bool idle = s->sent == STORM && s->holds == 0;
        struct transfer_wake got;
        int64_t moment = (1 + storm_dice(s, 20)) * (WORLD_SECOND / 10000);
        if (storm_dice(s, 4) == 0 && (s->holds || s->sent < STORM))
            CHECK(world_sleep(s->w, world_now(s->w) + moment) == OK);
        if (s->sent < STORM && storm_dice(s, 2) == 0)
            CHECK(storm_send(s) == OK);
        if (s->holds && storm_dice(s, 3) == 0)
            CHECK(storm_accept(s) == OK);
        int64_t until = idle ? story_until(s->w) : world_now(s->w) + moment;
        int rc = transfers_next(&s->ps, NULL, 0, until, &got);
        CHECK(rc == OK || (rc == ERR_TIMEOUT && !idle));
        if (rc == OK && got.header)
            s->held[s->holds++] = got.header;
        else if (rc == OK)
            CHECK(storm_ended(s, got.ended) == OK);
    }
    return OK;
}

static inline int storm_play(struct world *w, uint32_t nodes, uint64_t seed)
{
    struct storm *s = calloc(1, sizeof *s);
    CHECK(s && nodes <= 8);
    *s = (struct storm){.w = w, .nodes = nodes, .seed = seed};
    transfers_init(&s->ps, w, NULL, 3);
    s->ps.stripes = (uint32_t)(seed % 5);
    for (uint32_t from = 0; from < nodes; from++)
        for (size_t k = 0; k < STORM; k++)
            s->expected += storm_to(s, from, k) == w->self;
    int rc = storm_blow(s);
    transfers_close(&s->ps);
    ranges_free(s->from, s->sent), ranges_free(s->into, s->begun);
    free(s);
    return rc == OK ? suite_part(w, nodes) : rc;
}

/* ---- what nobody accepts is in nobody's way ---- */

enum { HELD = 8, HELD_FLOATS = 24 * PIECE };

static inline int story_held(struct world *w)
{
    struct transfers ps;
    struct transfer p[HELD] = {0};
    struct range x;
    struct message *header[HELD];
    if (w->self > 1)
        return suite_part(w, STORY_NODES);
    transfers_init(&ps, w, NULL, 1);
    CHECK(range_new(&x, HELD_FLOATS, 0) == OK);
    if (w->self == 0) {
        range_fill(&x, 0, 0);
        for (size_t k = 0; k < HELD; k++) /* four times the credit */
            send_range(&p[k], &ps, 1, 1, &x);
        CHECK(transfer_finish(&p[1], world_now(w) + SUITE_MOMENT) == ERR_TIMEOUT);
        CHECK(suite_send_bulk(w, 1, message_new(9, 0, WORLD_MESSAGE_MAX)) == OK);
        for (size_t k = 0; k < HELD; k++)
            CHECK(transfer_finish(&p[k], story_until(w)) == OK);
    } else {
        const struct wait_for bulk = {.kind = WAIT_MESSAGE, .tag = 9, .mask = UINT64_MAX};
        struct wake wake;
        for (size_t k = 0; k < HELD; k++)
            CHECK(transfers_await(&ps, 0, story_until(w), &header[k]) == OK);
        CHECK(world_wait(w, &bulk, 1, story_until(w), &wake) == OK);
        message_unref(wake.msg);
        for (size_t k = HELD; k-- > 0;) {
            memset(x.x, 0, x.n * sizeof(float));
            transfer_accept(&p[k], &ps, header[k], &(struct transfer_in){.x = x.x, .n = x.n});
            CHECK(transfer_finish(&p[k], story_until(w)) == OK && range_is(&x, 0, 0, 1));
        }
    }
    transfers_close(&ps);
    ranges_free(&x, 1);
    return suite_part(w, STORY_NODES);
}

/* ---- cancelled, by either side, at any time: often enough to use up all credit if any was kept */

enum { CANCELS = 60, MOMENTS = 12, LONG = 40 * PIECE };

static inline int cancel_outgoing(struct world *w, struct transfers *ps, struct range *x)
{
    struct transfer out = {0};
    int rc = suite_send_bulk(w, 1, message_new(9, 0, WORLD_MESSAGE_MAX));
    send_range(&out, ps, 1, 1, x); /* its header has to wait */
    transfer_cancel(&out);
    memset(&out, 0, sizeof out);
    for (uint8_t k = 0; rc == OK && k <= CANCELS; k++) {
        range_fill(x, 0, k);
        transfer_send(&out, ps,
                      &(struct transfer_out){
                          .to = 1, .lane = 1, .x = x->x, .n = x->n, .header = &k, .header_len = 1});
        bool last = k == CANCELS;
        int64_t moment = k % MOMENTS * (SUITE_MOMENT / MOMENTS);
        rc = transfer_finish(&out, last ? story_until(w) : world_now(w) + moment);
        CHECK(rc == OK || (!last && (rc == ERR_TIMEOUT || rc == ERR_STOP)));
        transfer_cancel(&out);
        CHECK(out.status == (rc == ERR_TIMEOUT ? ERR_CANCELLED : rc));
        transfer_cancel(&out); /* over: nothing */
        rc = OK;
    }
    return rc;
}

/* The sender may have cancelled some, header included. */
static inline int cancel_incoming(struct world *w, struct transfers *ps, struct range *x)
{
    const struct wait_for bulk = {.kind = WAIT_MESSAGE, .tag = 9, .mask = UINT64_MAX};
    struct transfer in = {0};
    struct message *header;
    struct wake wake;
    CHECK(world_wait(w, &bulk, 1, story_until(w), &wake) == OK);
    message_unref(wake.msg);
    for (size_t k = 0; k < CANCELS;) {
        CHECK(transfers_await(ps, 0, story_until(w), &header) == OK);
        transfer_accept(&in, ps, header, &(struct transfer_in){.x = x->x, .n = x->n});
        struct byte_reader cut = transfer_reader(&in);
        k = read_u8(&cut);
        bool stays = k % 2 || k == CANCELS;
        int rc = transfer_finish(&in, stays ? story_until(w) : world_now(w) + SUITE_MOMENT / 10);
        CHECK(rc == OK || (k < CANCELS && rc == ERR_STOP) || (!stays && rc == ERR_TIMEOUT));
        CHECK(rc != OK || range_is(x, 0, k, 1));
        transfer_cancel(&in);
        CHECK(in.status == (rc == ERR_TIMEOUT ? ERR_CANCELLED : rc));
        CHECK(expect_untouched(w, x));
    }
    return OK;
}

static inline int story_cancel(struct world *w)
{
    struct transfers ps;
    struct range x;
    if (w->self > 1)
        return suite_part(w, STORY_NODES);
    transfers_init(&ps, w, NULL, 1);
    CHECK(range_new(&x, LONG, 0) == OK);
    int rc = w->self == 0 ? cancel_outgoing(w, &ps, &x) : cancel_incoming(w, &ps, &x);
    transfers_close(&ps);
    ranges_free(&x, 1);
    return rc == OK ? suite_part(w, STORY_NODES) : rc;
}

/* ---- a view ends in the middle; the lane serves on in the next ---- */

static inline int abort_in_the_middle(struct world *w, struct transfers *ps, struct range *x,
                                      uint32_t view)
{
    struct transfer p = {0}, waiting = {0}; /* no node accepts the latter */
    struct message *header;
    ps->view = view;
    if (w->self == 0) {
        send_range(&p, ps, 1, 1, x);
        send_range(&waiting, ps, 1, 1, x);
    } else if (transfers_await(ps, 0, world_now(w) + SUITE_MOMENT, &header) == OK) {
        transfer_accept(&p, ps, header, &(struct transfer_in){.x = x->x, .n = x->n});
    }
    int rc = transfer_finish(&p, world_now(w) + (int64_t)view * (SUITE_MOMENT / 8));
    CHECK(rc == ERR_TIMEOUT || rc == OK || rc == ERR_VIEW);
    world_abort(w, view + 1);
    int end = transfer_finish(&p, story_until(w));
    CHECK(rc == OK ? end == OK : end == ERR_VIEW || (rc == ERR_TIMEOUT && end == OK));
    CHECK(w->self == 1 || transfer_finish(&waiting, story_until(w)) == ERR_VIEW);
    CHECK(w->self == 0 || transfers_await(ps, 0, story_until(w), &header) == ERR_VIEW);
    send_range(&p, ps, 1 - w->self, 1, x); /* too late */
    CHECK(p.status == ERR_VIEW);
    CHECK(transfer_finish(&p, 0) == ERR_VIEW);
    CHECK(expect_untouched(w, x));
    return OK;
}

static inline int story_abort(struct world *w)
{
    struct transfers ps;
    struct range x;
    if (w->self > 1)
        return suite_part(w, STORY_NODES);
    transfers_init(&ps, w, NULL, 1);
    CHECK(range_new(&x, LONG, 0) == OK);
    for (uint32_t view = 1; view < 12; view++) {
        int rc = abort_in_the_middle(w, &ps, &x, view);
        if (rc != OK)
            return rc;
    }
    transfers_close(&ps);
    ranges_free(&x, 1);
    return suite_part(w, STORY_NODES);
}

/* ---- two tasks of one node: as many under way at once as it has no credit for ---- */

enum { OWN = 10, OWN_FLOATS = 8 * PIECE };

static inline int story_self_sender(void *arg)
{
    struct world *w = arg;
    struct transfers ps;
    struct transfer out[OWN] = {0};
    struct range x;
    transfers_init(&ps, w, NULL, 1);
    CHECK(range_new(&x, OWN_FLOATS, 0) == OK);
    range_fill(&x, 0, 0);
    for (size_t k = 0; k < OWN; k++)
        transfer_send(&out[k], &ps,
                      &(struct transfer_out){.to = w->self, .lane = 2, .x = x.x, .n = x.n - k});
    for (size_t k = 0; k < OWN; k++)
        CHECK(transfer_finish(&out[k], story_until(w)) == OK);
    transfers_close(&ps);
    ranges_free(&x, 1);
    return OK;
}

static inline int story_self(struct world *w)
{
    struct group counted = {.world = w};
    struct transfers ps;
    struct transfer in[OWN] = {0};
    struct range x[OWN];
    struct message *header[OWN];
    struct task *task;
    int result;
    transfers_init(&ps, w, &counted, 2);
    CHECK(world_spawn(w, "sender", story_self_sender, w, &task) == OK);
    for (size_t k = 0; k < OWN; k++) {
        CHECK(range_new(&x[k], OWN_FLOATS - k, 0) == OK);
        CHECK(transfers_await(&ps, w->self, story_until(w), &header[k]) == OK);
        CHECK(transfer_header_lane(header[k]) == 1);
    }
    for (size_t k = 0; k < OWN; k++)
        transfer_accept(&in[k], &ps, header[k], &(struct transfer_in){.x = x[k].x, .n = x[k].n});
    for (size_t k = 0; k < OWN; k++)
        CHECK(transfer_finish(&in[k], story_until(w)) == OK && range_is(&x[k], 0, 0, 1));
    CHECK(counted.moved == 0); /* it has not left the node */
    CHECK(world_join(w, task, story_until(w), &result) == OK && result == OK);
    transfers_close(&ps);
    ranges_free(x, OWN);
    return suite_part(w, STORY_NODES);
}

/* ---- a peer that leaves or dies; and messages that are no header ---- */

static inline int send_bytes(struct world *w, uint32_t to, uint64_t tag, size_t len)
{
    struct message *m = message_new(tag, 0, len);
    CHECK(m);
    memset(m->data, 1, len);
    return world_send(w, to, m, CLASS_BULK);
}

static inline int leave_in_the_middle(struct world *w, struct transfers *ps, struct range *x)
{
    struct transfer out = {0};
    CHECK(send_bytes(w, 0, wire_tag(WIRE_TRANSFER, 1, 4711, WIRE_HEADER_PIECE), 7) == OK);
    CHECK(send_bytes(w, 0, wire_tag(WIRE_TRANSFER, 1, 4711, 3), 100) == OK);
    CHECK(send_bytes(w, 0, wire_tag(WIRE_TRANSFER, 1, 4711, WIRE_HEADER_PIECE), 5000) == OK);
    /* Not as long as it is expected to be: */
    transfer_send(&out, ps, &(struct transfer_out){.lane = 1, .x = x->x, .n = x->n - 1});
    CHECK(transfer_finish(&out, story_until(w)) == ERR_STOP);
    send_range(&out, ps, 0, 1, x);
    CHECK(transfer_finish(&out, world_now(w) + SUITE_MOMENT) == ERR_TIMEOUT);
    transfer_cancel(&out);
    return OK;
}

static inline int see_it_go(struct world *w, struct transfers *ps, struct range *x)
{
    struct transfer in = {0}, out = {0};
    struct message *header;
    CHECK(transfers_await(ps, 1, story_until(w), &header) == OK);
    transfer_accept(&in, ps, header, &(struct transfer_in){.x = x->x, .n = x->n});
    CHECK(in.status == ERR_PROTOCOL && transfer_finish(&in, 0) == ERR_PROTOCOL);
    CHECK(transfers_await(ps, 1, story_until(w), &header) == OK);
    CHECK(transfers_await(ps, WORLD_ANY, world_now(w) + SUITE_MOMENT / 10, &header) == ERR_TIMEOUT);
    send_range(&out, ps, 1, 1, x);
    CHECK(transfers_await(ps, 1, story_until(w), &header) == ERR_PEER);
    CHECK(transfer_finish(&out, story_until(w)) == ERR_PEER);
    transfer_accept(&in, ps, header, &(struct transfer_in){.x = x->x, .n = x->n});
    CHECK(transfer_finish(&in, story_until(w)) == ERR_STOP); /* it was refused */
    send_range(&out, ps, 1, 1, x);                           /* it is not there */
    CHECK(transfer_finish(&out, story_until(w)) == ERR_PEER);
    return OK;
}

static inline int story_ended(struct world *w)
{
    struct transfers ps;
    struct range x;
    transfers_init(&ps, w, NULL, 1);
    CHECK(range_new(&x, LONG, 0) == OK);
    int rc = w->self == 1   ? leave_in_the_middle(w, &ps, &x)
             : w->self == 0 ? see_it_go(w, &ps, &x)
                            : OK;
    transfers_close(&ps);
    ranges_free(&x, 1);
    return rc;
}

#endif
