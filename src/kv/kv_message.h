/* Messages between the store's nodes: readers and holders, master and nodes. All travel in view 0.
 *
 *   KV_REQUEST  node → master    u8 what · u64 request · text key ·
 *                                u64 version, size, checksum · u8 patient
 *   KV_REPLY    master → node    u8 what · u64 request · u64 version, size, checksum · u8 count ·
 *                                count × (u32 node · text address) · i32 status · text refusal
 *   KV_FETCH    reader → holder  text key · u64 version · u64 at · u32 length
 *   KV_PIECE    holder → reader  `length` bytes
 *   KV_GONE     holder → reader  u8 reason
 *
 * The last three carry the number of the piece. Numbers are the reader's, each used once, so that a
 * late message is never taken for another. Decoding checks every bound. */
#ifndef PL_KV_KV_MESSAGE_H
#define PL_KV_KV_MESSAGE_H

#include "kv/kv_table.h"
#include "wire/wire_send.h"

struct kv_request {
    enum kv_event_kind what; /* KV_HOLD … KV_LEAVE */
    uint64_t request;
    char key[KV_KEY_MAX + 1]; /* HOLD, FIND, DROP */
    struct kv_meta meta;
    bool patient;
};

void kv_request_encode(const struct kv_request *request, struct buf *out);
/* ERR_PROTOCOL */
int kv_request_decode(struct byte_reader *in, struct kv_request *out);

struct kv_reply {
    enum kv_order_kind what;
    uint64_t request;
    struct kv_meta meta;
    uint32_t count;
    uint32_t node[KV_LOCATIONS];
    char address[KV_LOCATIONS][NODE_ADDRESS_MAX]; /* for a node that is no member; else empty */
    struct err refusal;
};

void kv_reply_encode(const struct kv_reply *reply, struct buf *out);
int kv_reply_decode(struct byte_reader *in, struct kv_reply *out);

struct kv_piece {
    char key[KV_KEY_MAX + 1];
    uint64_t version, at;
    uint32_t len; /* 1 … KV_PIECE */
};

void kv_piece_encode(const struct kv_piece *piece, struct buf *out);
int kv_piece_decode(struct byte_reader *in, struct kv_piece *out);

enum kv_gone {
    KV_NOT_HERE = 1, /* this node does not hold it */
    KV_BUSY,         /* it sends too much already: later */
};

int kv_gone_decode(struct byte_reader *in, enum kv_gone *out);

/* The checksum of a value: of its length, and piece by piece, so that it can be made while pieces
 * come in. `piece` has the checksum of each (kv_pieces of them). */
static inline uint32_t kv_pieces(uint64_t size)
{
    return (uint32_t)((size + KV_PIECE - 1) / KV_PIECE);
}

uint64_t kv_checksum(const void *data, uint64_t size);
uint64_t kv_checksum_pieces(const uint64_t *piece, uint64_t size);

#endif
