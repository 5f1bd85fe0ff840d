#include "kv/kv_message.h"

#include "base/hash.h"

/* ---- metadata ---- */

static void put_meta(const struct kv_meta *meta, struct buf *out)
{
    buf_put_u64(out, meta->version);
    buf_put_u64(out, meta->size);
    buf_put_u64(out, meta->checksum);
}

static struct kv_meta read_meta(struct byte_reader *in)
{
    struct kv_meta meta;
    meta.version = read_u64(in);
    meta.size = read_u64(in);
    meta.checksum = read_u64(in);
    if (meta.size > KV_VALUE_MAX)
        in->failed = true;
    return meta;
}

static void read_key(struct byte_reader *in, char key[KV_KEY_MAX + 1])
{
    read_text(in, key, KV_KEY_MAX + 1);
    if (kv_key_check(key, ERR_PROTOCOL, NULL) != OK)
        in->failed = true;
}

static int read_end(const struct byte_reader *in)
{
    return byte_reader_done(in) ? OK : ERR_PROTOCOL;
}

/* ---- to the master ---- */

static bool has_key(enum kv_event_kind what)
{
    return what == KV_HOLD || what == KV_FIND || what == KV_DROP;
}

void kv_request_encode(const struct kv_request *request, struct buf *out)
{
    buf_put_u8(out, (uint8_t)request->what);
    buf_put_u64(out, request->request);
    if (!has_key(request->what))
        return;
    buf_put_text(out, request->key);
    put_meta(&request->meta, out);
    buf_put_u8(out, request->patient);
}

int kv_request_decode(struct byte_reader *in, struct kv_request *out)
{
    *out = (struct kv_request){.what = (enum kv_event_kind)read_u8(in)};
    out->request = read_u64(in);
    if (out->what < KV_HOLD || out->what > KV_LEAVE)
        return ERR_PROTOCOL;
    if (has_key(out->what)) {
        read_key(in, out->key);
        out->meta = read_meta(in);
        uint8_t patient = read_u8(in);
        out->patient = patient == 1;
        in->failed |= patient > 1;
    }
    return read_end(in);
}

/* ---- from the master ---- */

void kv_reply_encode(const struct kv_reply *reply, struct buf *out)
{
    buf_put_u8(out, (uint8_t)reply->what);
    buf_put_u64(out, reply->request);
    put_meta(&reply->meta, out);
    buf_put_u8(out, (uint8_t)reply->count);
    for (uint32_t i = 0; i < reply->count; i++) {
        buf_put_u32(out, reply->node[i]);
        buf_put_text(out, reply->address[i]);
    }
    buf_put_u32(out, (uint32_t)reply->refusal.status);
    buf_put_text(out, reply->refusal.text);
}

/* Statuses with which a master may refuse. */
static bool is_refusal(int status)
{
    return status == ERR_REPLICAS || status == ERR_USAGE || status == ERR_VIEW ||
           status == ERR_FULL;
}

int kv_reply_decode(struct byte_reader *in, struct kv_reply *out)
{
    *out = (struct kv_reply){.what = (enum kv_order_kind)read_u8(in)};
    out->request = read_u64(in);
    out->meta = read_meta(in);
    out->count = read_u8(in);
    if (out->what > KV_REFUSED || out->count > KV_LOCATIONS)
        return ERR_PROTOCOL;
    for (uint32_t i = 0; i < out->count; i++) {
        out->node[i] = read_u32(in);
        read_text(in, out->address[i], NODE_ADDRESS_MAX);
        in->failed |= out->node[i] >= VIEW_MEMBERS_MAX;
    }
    out->refusal.status = (int)read_u32(in);
    read_text(in, out->refusal.text, sizeof out->refusal.text);
    if (out->what == KV_REFUSED ? !is_refusal(out->refusal.status) : out->refusal.status != OK)
        in->failed = true;
    return read_end(in);
}

/* ---- between readers and holders ---- */

void kv_piece_encode(const struct kv_piece *piece, struct buf *out)
{
    buf_put_text(out, piece->key);
    buf_put_u64(out, piece->version);
    buf_put_u64(out, piece->at);
    buf_put_u32(out, piece->len);
}

int kv_piece_decode(struct byte_reader *in, struct kv_piece *out)
{
    *out = (struct kv_piece){0};
    read_key(in, out->key);
    out->version = read_u64(in);
    out->at = read_u64(in);
    out->len = read_u32(in);
    if (out->len == 0 || out->len > KV_PIECE || out->at > KV_VALUE_MAX - out->len)
        in->failed = true;
    return read_end(in);
}

int kv_gone_decode(struct byte_reader *in, enum kv_gone *out)
{
    uint8_t why = read_u8(in);
    *out = why == KV_BUSY ? KV_BUSY : KV_NOT_HERE;
    in->failed |= why != KV_BUSY && why != KV_NOT_HERE;
    return read_end(in);
}

/* ---- checksums ---- */

static uint64_t piece_hash(const void *data, uint64_t size, uint32_t i)
{
    uint64_t at = (uint64_t)i * KV_PIECE, left = size - at;
    return hash_bytes((const char *)data + at, left < KV_PIECE ? left : KV_PIECE);
}

uint64_t kv_checksum(const void *data, uint64_t size)
{
    uint64_t hash = hash_mix(0, size);
    for (uint32_t i = 0; i < kv_pieces(size); i++)
        hash = hash_mix(hash, piece_hash(data, size, i));
    return hash;
}

uint64_t kv_checksum_pieces(const uint64_t *piece, uint64_t size)
{
    uint64_t hash = hash_mix(0, size);
    for (uint32_t i = 0; i < kv_pieces(size); i++)
        hash = hash_mix(hash, piece[i]);
    return hash;
}
