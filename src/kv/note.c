#include "kv/note.h"

#include "base/hash.h"

/* ---- metadata ---- */

static void put_meta(const struct kv_meta *meta, struct buf *out)
{
    buf_put_u64(out, meta->version);
    buf_put_u64(out, meta->size);
    buf_put_u64(out, meta->checksum);
}

static struct kv_meta cut_meta(struct cut *in)
{
    struct kv_meta meta;
    meta.version = cut_u64(in);
    meta.size = cut_u64(in);
    meta.checksum = cut_u64(in);
    if (meta.size > KV_VALUE_MAX)
        in->failed = true;
    return meta;
}

static void cut_key(struct cut *in, char key[KV_KEY_MAX + 1])
{
    cut_text(in, key, KV_KEY_MAX + 1);
    if (kv_key_check(key, ERR_PROTOCOL, NULL) != OK)
        in->failed = true;
}

static int end(const struct cut *in)
{
    return cut_done(in) ? OK : ERR_PROTOCOL;
}

/* ---- to the master ---- */

static bool has_key(enum kv_event_kind what)
{
    return what == KV_HOLD || what == KV_FIND || what == KV_DROP;
}

void kv_ask_encode(const struct kv_ask *ask, struct buf *out)
{
    buf_put_u8(out, (uint8_t)ask->what);
    buf_put_u64(out, ask->request);
    if (!has_key(ask->what))
        return;
    buf_put_text(out, ask->key);
    put_meta(&ask->meta, out);
    buf_put_u8(out, ask->patient);
}

int kv_ask_decode(struct cut *in, struct kv_ask *out)
{
    *out = (struct kv_ask){.what = (enum kv_event_kind)cut_u8(in)};
    out->request = cut_u64(in);
    if (out->what < KV_HOLD || out->what > KV_LEAVE)
        return ERR_PROTOCOL;
    if (has_key(out->what)) {
        cut_key(in, out->key);
        out->meta = cut_meta(in);
        uint8_t patient = cut_u8(in);
        out->patient = patient == 1;
        in->failed |= patient > 1;
    }
    return end(in);
}

/* ---- from the master ---- */

void kv_tell_encode(const struct kv_tell *tell, struct buf *out)
{
    buf_put_u8(out, (uint8_t)tell->what);
    buf_put_u64(out, tell->request);
    put_meta(&tell->meta, out);
    buf_put_u8(out, (uint8_t)tell->count);
    for (uint32_t i = 0; i < tell->count; i++) {
        buf_put_u32(out, tell->node[i]);
        buf_put_text(out, tell->address[i]);
    }
    buf_put_u32(out, (uint32_t)tell->refusal.status);
    buf_put_text(out, tell->refusal.text);
}

/* What a master may refuse with. */
static bool is_refusal(int status)
{
    return status == ERR_REPLICAS || status == ERR_USAGE || status == ERR_VIEW ||
           status == ERR_FULL;
}

int kv_tell_decode(struct cut *in, struct kv_tell *out)
{
    *out = (struct kv_tell){.what = (enum kv_order_kind)cut_u8(in)};
    out->request = cut_u64(in);
    out->meta = cut_meta(in);
    out->count = cut_u8(in);
    if (out->what > KV_REFUSED || out->count > KV_LOCATIONS)
        return ERR_PROTOCOL;
    for (uint32_t i = 0; i < out->count; i++) {
        out->node[i] = cut_u32(in);
        cut_text(in, out->address[i], NODE_ADDRESS_MAX);
        in->failed |= out->node[i] >= VIEW_MEMBERS_MAX;
    }
    out->refusal.status = (int)cut_u32(in);
    cut_text(in, out->refusal.text, sizeof out->refusal.text);
    if (out->what == KV_REFUSED ? !is_refusal(out->refusal.status) : out->refusal.status != OK)
        in->failed = true;
    return end(in);
}

/* ---- between readers and holders ---- */

void kv_piece_encode(const struct kv_piece *piece, struct buf *out)
{
    buf_put_text(out, piece->key);
    buf_put_u64(out, piece->version);
    buf_put_u64(out, piece->at);
    buf_put_u32(out, piece->len);
}

int kv_piece_decode(struct cut *in, struct kv_piece *out)
{
    *out = (struct kv_piece){0};
    cut_key(in, out->key);
    out->version = cut_u64(in);
    out->at = cut_u64(in);
    out->len = cut_u32(in);
    if (out->len == 0 || out->len > KV_PIECE || out->at > KV_VALUE_MAX - out->len)
        in->failed = true;
    return end(in);
}

int kv_gone_decode(struct cut *in, enum kv_gone *out)
{
    uint8_t why = cut_u8(in);
    *out = why == KV_BUSY ? KV_BUSY : KV_NOT_HERE;
    in->failed |= why != KV_BUSY && why != KV_NOT_HERE;
    return end(in);
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
