/* Decides which piece of a value to fetch next from which holder; pure. Pieces are spread over all
 * known holders, the one with the fewest under way first, so that each sends as fast as its link
 * allows. The others take over the pieces of a holder that ends. When all pieces are under way, an
 * idle holder takes over from a slow one. */
#ifndef PL_KV_FETCH_PLAN_H
#define PL_KV_FETCH_PLAN_H

#include "kv/kv_table.h"
#include "world/world.h"

enum kv_source_state {
    KV_LIVE,
    KV_RESTS, /* it was busy: not before `until` */
    KV_OUT,   /* it is gone, does not reply, or has no copy any more */
};

struct kv_source {
    enum kv_source_state state;
    uint32_t node, under_way;
    int64_t until;
    int64_t last_piece; /* when a piece last arrived from it, or the first one was requested */
    int64_t pace;       /* recent ns for a piece; 0: none has arrived */
};

struct kv_plan {
    struct kv_meta meta;
    uint32_t pieces, have, next; /* next: no piece below it is needed */
    uint8_t *state;              /* of each piece */
    uint8_t *providers;          /* from which source it is under way */
    uint64_t *hash;              /* of the received pieces */
    struct kv_source source[KV_LOCATIONS];
    uint32_t sources;
    bool alone;            /* fetch from one holder at a time, to find the faulty one */
    struct members givers; /* of the received pieces */
    struct members liars;  /* their pieces disagreed with the master's checksum */
};

/* ERR_NOMEM */
int kv_plan_init(struct kv_plan *plan, const struct kv_meta *meta);
void kv_plan_release(struct kv_plan *plan);

/* Set the present holders. No piece may be under way; received pieces stay. */
void kv_plan_sources(struct kv_plan *plan, const uint32_t *node, uint32_t count);

/* The next piece to want, from source s: true, and it counts as under way. */
bool kv_plan_next(struct kv_plan *plan, int64_t now, uint32_t *s, uint32_t *piece);

/* Move a piece between holders when all pieces are received or under way: true if the idle source
 * *to would deliver *piece in less than half the time of source *from; it then counts as under way
 * from *to. */
bool kv_plan_move(struct kv_plan *plan, int64_t now, uint32_t *from, uint32_t *to, uint32_t *piece);

/* Outcomes of a piece. */
void kv_plan_landed(struct kv_plan *plan, uint32_t s, uint32_t piece, uint64_t hash, int64_t now);
void kv_plan_failed(struct kv_plan *plan, uint32_t s, uint32_t piece);

/* Nothing is wanted from this source any more; its pieces have failed. */
void kv_plan_out(struct kv_plan *plan, uint32_t s);
void kv_plan_rest(struct kv_plan *plan, uint32_t s, int64_t until);

/* All pieces are here. OK: they agree with the master's checksum. ERR_PROTOCOL: they do not, and
 * all are fetched again; *liar is the node that sent them (WORLD_ANY: several did, and they are now
 * tried one by one) */
int kv_plan_check(struct kv_plan *plan, uint32_t *liar);

/* Is nothing under way, with no holder left to request from? */
bool kv_plan_stuck(const struct kv_plan *plan);

/* When the next source has rested, or a piece may be moved; WORLD_FOREVER: neither will be. */
int64_t kv_plan_wakes(const struct kv_plan *plan, int64_t now);

/* Offset and length of piece i in the value; number of received bytes. */
static inline uint64_t kv_piece_at(uint32_t i)
{
    return (uint64_t)i * KV_PIECE;
}

static inline uint32_t kv_piece_len(const struct kv_plan *plan, uint32_t i)
{
    uint64_t left = plan->meta.size - kv_piece_at(i);
    return left < KV_PIECE ? (uint32_t)left : KV_PIECE;
}

uint64_t kv_plan_bytes(const struct kv_plan *plan);

#endif
