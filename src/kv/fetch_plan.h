/* Which pieces of a value to want from which holder next: pure decisions of one fetch. Pieces are
 * spread over all holders that are told of, the one with the fewest under way first, so that each
 * gives what its link can and a holder that ends leaves its pieces to the others. When all pieces
 * are under way, who is done takes over from who is slow. */
#ifndef PL_KV_FETCH_PLAN_H
#define PL_KV_FETCH_PLAN_H

#include "kv/kv_table.h"
#include "world/world.h"

enum kv_source_state {
    KV_LIVE,
    KV_RESTS, /* it was busy: not before `until` */
    KV_OUT,   /* it is gone, or does not answer, or no longer has it */
};

struct kv_source {
    enum kv_source_state state;
    uint32_t node, under_way;
    int64_t until;
    int64_t last_piece; /* when a piece last came from there, or the first one was asked for */
    int64_t pace;       /* ns for a piece, lately; 0: none has come yet */
};

struct kv_plan {
    struct kv_meta meta;
    uint32_t pieces, have, next; /* next: no piece below it is needed */
    uint8_t *state;              /* of each piece */
    uint8_t *providers;          /* from which source it is under way */
    uint64_t *hash;              /* of those that are here */
    struct kv_source source[KV_LOCATIONS];
    uint32_t sources;
    bool alone;            /* one holder at a time, to find out which one sends what is wrong */
    struct members givers; /* of the pieces that are here */
    struct members liars;  /* what they sent had not the checksum that the master has */
};

/* ERR_NOMEM */
int kv_plan_init(struct kv_plan *plan, const struct kv_meta *meta);
void kv_plan_release(struct kv_plan *plan);

/* These hold it now. Nothing is under way; what is here stays. */
void kv_plan_sources(struct kv_plan *plan, const uint32_t *node, uint32_t count);

/* The next piece to want, from source s: true, and it counts as under way. */
bool kv_plan_next(struct kv_plan *plan, int64_t now, uint32_t *s, uint32_t *piece);

/* All pieces are here or under way, and source *to, which is idle, would have *piece sooner than
 * source *from, twice over: true, and it is under way from there. */
bool kv_plan_move(struct kv_plan *plan, int64_t now, uint32_t *from, uint32_t *to, uint32_t *piece);

/* Outcomes of a piece. */
void kv_plan_landed(struct kv_plan *plan, uint32_t s, uint32_t piece, uint64_t hash, int64_t now);
void kv_plan_failed(struct kv_plan *plan, uint32_t s, uint32_t piece);

/* Nothing is wanted from this source any more; its pieces have failed. */
void kv_plan_out(struct kv_plan *plan, uint32_t s);
void kv_plan_rest(struct kv_plan *plan, uint32_t s, int64_t until);

/* All pieces are here. OK: they are what the master's checksum says. ERR_PROTOCOL: not; all are to
 * come again, *liar is who sent them (WORLD_ANY: several did, and now they are asked one by one) */
int kv_plan_check(struct kv_plan *plan, uint32_t *liar);

/* Nothing is under way, and nobody is left to be asked. */
bool kv_plan_stuck(const struct kv_plan *plan);

/* When the next source has rested, or a piece may be moved; WORLD_FOREVER: neither will be. */
int64_t kv_plan_wakes(const struct kv_plan *plan, int64_t now);

/* Where piece i lies in the value, and how long it is; bytes that are here. */
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
