/* What the store's nodes say to each other. Readers and holders, master and nodes:
 *
 *   KV_ASK    node → master    u8 what · u64 request · text key · u64 version, size, checksum · u8
 *   KV_TELL   master → node    u8 what · u64 request · u64 version, size, checksum ·
 *                              u8 count · count × (u32 node · text address) · i32 status · text why
 *   KV_FETCH  reader → holder  text key · u64 version · u64 at · u32 length     number: the piece's
 *   KV_PIECE  holder → reader  `length` bytes                                   the same number
 *   KV_GONE   holder → reader  u8 why not                                       the same number
 *
 * all of view 0. Numbers are the reader's, each used once, so that what comes late is never taken
 * for something else. Decoding checks every bound; what it lets through may be worked with. */
#ifndef PL_KV_NOTE_H
#define PL_KV_NOTE_H

#include "kv/core.h"
#include "wire/post.h"

struct kv_ask {
    enum kv_event_kind what; /* KV_HOLD … KV_LEAVE */
    uint64_t request;
    char key[KV_KEY_MAX + 1]; /* HOLD, FIND, DROP */
    struct kv_meta meta;
    bool patient;
};

void kv_ask_encode(const struct kv_ask *ask, struct buf *out);
/* ERR_PROTOCOL */
int kv_ask_decode(struct cut *in, struct kv_ask *out);

struct kv_tell {
    enum kv_order_kind what;
    uint64_t request;
    struct kv_meta meta;
    uint32_t count;
    uint32_t node[KV_LOCATIONS];
    char address[KV_LOCATIONS][NODE_ADDRESS_MAX]; /* for who is no member; else empty */
    struct err refusal;
};

void kv_tell_encode(const struct kv_tell *tell, struct buf *out);
int kv_tell_decode(struct cut *in, struct kv_tell *out);

struct kv_piece {
    char key[KV_KEY_MAX + 1];
    uint64_t version, at;
    uint32_t len; /* 1 … KV_PIECE */
};

void kv_piece_encode(const struct kv_piece *piece, struct buf *out);
int kv_piece_decode(struct cut *in, struct kv_piece *out);

enum kv_gone {
    KV_NOT_HERE = 1, /* this node does not hold it */
    KV_BUSY,         /* it sends too much already: later */
};

int kv_gone_decode(struct cut *in, enum kv_gone *out);

/* The checksum of a value: of its length, and piece by piece, so that it can be made while pieces
 * come in. `piece` has the checksum of each (kv_pieces of them). */
static inline uint32_t kv_pieces(uint64_t size)
{
    return (uint32_t)((size + KV_PIECE - 1) / KV_PIECE);
}

uint64_t kv_checksum(const void *data, uint64_t size);
uint64_t kv_checksum_pieces(const uint64_t *piece, uint64_t size);

#endif
