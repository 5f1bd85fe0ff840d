/* The messages of the key-value store, one after another, received by a master and a node. Accepted
 * messages have the same meaning after encoding and decoding; and the master's table keeps its
 * invariants under any messages.
 *
 *   u8 kind: 0 ask, 1 tell, 2 piece, 3 gone, 4 a view of the nodes in the bits of u8
 *   u8 node, u8 length, then the message */
#include "support/fuzz.h"

#include "kv/kv_message.h"

#include <stdlib.h>
#include <string.h>

static struct kv_orders out;

/* No node holds a version that it may not; each entry has a holder and exists once. */
static void judge_table(const struct kv_table *table)
{
    PL_ASSERT(table->count <= KV_ENTRIES_MAX && table->waits <= KV_WAITS_MAX);
    PL_ASSERT(out.count <= KV_WAITS_MAX + 1);
    for (size_t i = 0; i < table->count; i++) {
        const struct kv_entry *e = &table->entry[i];
        PL_ASSERT(kv_key_check(e->key, ERR_BUG, NULL) == OK);
        PL_ASSERT(e->meta.version > 0 && e->meta.version <= KV_VERSION_MAX);
        PL_ASSERT(e->meta.size <= KV_VALUE_MAX && members_count(&e->holders) > 0);
        for (size_t w = 0; w < MEMBER_WORDS; w++)
            PL_ASSERT((e->holders.word[w] & ~table->in.word[w]) == 0);
        for (size_t j = 0; j < i; j++)
            PL_ASSERT(strcmp(e->key, table->entry[j].key) != 0 ||
                      e->meta.version != table->entry[j].meta.version);
    }
}

/* Decoding the master's messages gives their contents. */
static void judge_orders(void)
{
    for (size_t i = 0; i < out.count; i++) {
        const struct kv_order *o = &out.at[i];
        struct kv_reply reply = {.what = o->kind,
                                 .request = o->request,
                                 .meta = o->meta,
                                 .count = o->count},
                        back;
        struct buf bytes = {0};
        for (uint32_t k = 0; k < o->count; k++)
            reply.node[k] = o->location[k];
        if (o->kind == KV_REFUSED)
            reply.refusal = out.refusal;
        kv_reply_encode(&reply, &bytes);
        struct byte_reader in = {bytes.data, bytes.len, false};
        PL_ASSERT(kv_reply_decode(&in, &back) == OK);
        PL_ASSERT(back.what == reply.what && back.request == reply.request);
        PL_ASSERT(memcmp(&back.meta, &reply.meta, sizeof back.meta) == 0);
        PL_ASSERT(back.count == reply.count && back.refusal.status == reply.refusal.status);
        PL_ASSERT(memcmp(back.node, reply.node, sizeof back.node) == 0);
        PL_ASSERT(strcmp(back.refusal.text, reply.refusal.text) == 0);
        buf_release(&bytes);
    }
}

static void on_request(struct kv_table *table, uint32_t node, struct byte_reader in)
{
    struct kv_request request, back;
    struct buf bytes = {0};
    if (kv_request_decode(&in, &request) != OK)
        return;
    kv_request_encode(&request, &bytes);
    struct byte_reader again = {bytes.data, bytes.len, false};
    PL_ASSERT(kv_request_decode(&again, &back) == OK && back.what == request.what);
    PL_ASSERT(back.request == request.request && strcmp(back.key, request.key) == 0);
    PL_ASSERT(memcmp(&back.meta, &request.meta, sizeof request.meta) == 0 &&
              back.patient == request.patient);
    buf_release(&bytes);
    const struct kv_event event = {.kind = request.what,
                                   .node = node,
                                   .request = request.request,
                                   .key = request.key,
                                   .meta = request.meta,
                                   .patient = request.patient};
    PL_ASSERT(kv_table_step(table, &event, &out) == OK);
    judge_table(table);
    judge_orders();
}

static void on_reply(struct byte_reader in)
{
    struct kv_reply reply, back;
    struct buf bytes = {0};
    if (kv_reply_decode(&in, &reply) != OK)
        return;
    PL_ASSERT(reply.count <= KV_LOCATIONS && reply.meta.size <= KV_VALUE_MAX);
    for (uint32_t i = 0; i < reply.count; i++)
        PL_ASSERT(reply.node[i] < VIEW_MEMBERS_MAX &&
                  memchr(reply.address[i], 0, NODE_ADDRESS_MAX));
    kv_reply_encode(&reply, &bytes);
    struct byte_reader again = {bytes.data, bytes.len, false};
    PL_ASSERT(kv_reply_decode(&again, &back) == OK && back.what == reply.what);
    PL_ASSERT(back.count == reply.count && back.refusal.status == reply.refusal.status);
    buf_release(&bytes);
}

static void on_piece(struct byte_reader in)
{
    struct kv_piece piece, back;
    struct buf bytes = {0};
    if (kv_piece_decode(&in, &piece) != OK)
        return;
    PL_ASSERT(piece.len > 0 && piece.len <= KV_PIECE && piece.at + piece.len <= KV_VALUE_MAX);
    PL_ASSERT(kv_key_check(piece.key, ERR_BUG, NULL) == OK);
    kv_piece_encode(&piece, &bytes);
    struct byte_reader again = {bytes.data, bytes.len, false};
    PL_ASSERT(kv_piece_decode(&again, &back) == OK && strcmp(back.key, piece.key) == 0);
    PL_ASSERT(back.version == piece.version && back.at == piece.at && back.len == piece.len);
    buf_release(&bytes);
}

static void on_view(struct kv_table *table, uint8_t bits)
{
    const struct members in = {{bits}};
    const struct kv_event event = {.kind = KV_MEMBERS, .members = &in};
    PL_ASSERT(kv_table_step(table, &event, &out) == OK && out.count == 0);
    judge_table(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct byte_reader in = {bytes, n, false};
    struct kv_table table;
    enum kv_gone why;
    kv_table_init(&table);
    while (in.left > 0 && !in.failed) {
        uint8_t kind = read_u8(&in), node = read_u8(&in);
        if (kind == 4) {
            on_view(&table, node);
            continue;
        }
        size_t len = read_u8(&in);
        if (in.failed)
            break;
        len = len < in.left ? len : in.left;
        const uint8_t *at = byte_reader_take(&in, len);
        uint8_t *own = malloc(len ? len : 1); /* a red zone follows each message */
        PL_ASSERT(own && at);
        memcpy(own, at, len);
        const struct byte_reader message = {own, len, false};
        struct byte_reader gone = message;
        if (kind == 0)
            on_request(&table, node % 16, message);
        else if (kind == 1)
            on_reply(message);
        else if (kind == 2)
            on_piece(message);
        else if (kv_gone_decode(&gone, &why) == OK)
            PL_ASSERT(why == KV_NOT_HERE || why == KV_BUSY);
        free(own);
    }
    kv_table_release(&table);
    return 0;
}
