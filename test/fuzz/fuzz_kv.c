/* The messages of the key-value store, one after another, as a master and a node hear them. What is
 * let through means the same when it is written and read again; and the master's book keeps its
 * rules, whoever says what.
 *
 *   u8 kind: 0 ask, 1 tell, 2 piece, 3 gone, 4 a view of the nodes in the bits of u8
 *   u8 node, u8 length, then the message */
#include "support/fuzz.h"

#include "kv/note.h"

#include <stdlib.h>
#include <string.h>

static struct kv_orders out;

/* Nobody holds what he may not; each entry has a holder and is there once. */
static void judge_book(const struct kv_book *book)
{
    PL_ASSERT(book->count <= KV_ENTRIES_MAX && book->waits <= KV_WAITS_MAX);
    PL_ASSERT(out.count <= KV_WAITS_MAX + 1);
    for (size_t i = 0; i < book->count; i++) {
        const struct kv_entry *e = &book->entry[i];
        PL_ASSERT(kv_key_check(e->key, ERR_BUG, NULL) == OK);
        PL_ASSERT(e->meta.version > 0 && e->meta.version <= KV_VERSION_MAX);
        PL_ASSERT(e->meta.size <= KV_VALUE_MAX && members_count(&e->holders) > 0);
        for (size_t w = 0; w < MEMBER_WORDS; w++)
            PL_ASSERT((e->holders.word[w] & ~book->in.word[w]) == 0);
        for (size_t j = 0; j < i; j++)
            PL_ASSERT(strcmp(e->key, book->entry[j].key) != 0 ||
                      e->meta.version != book->entry[j].meta.version);
    }
}

/* What the master would say reads back as what was meant. */
static void judge_orders(void)
{
    for (size_t i = 0; i < out.count; i++) {
        const struct kv_order *o = &out.at[i];
        struct kv_tell tell = {.what = o->kind,
                               .request = o->request,
                               .meta = o->meta,
                               .count = o->count},
                       back;
        struct buf bytes = {0};
        for (uint32_t k = 0; k < o->count; k++)
            tell.node[k] = o->location[k];
        if (o->kind == KV_REFUSED)
            tell.refusal = out.refusal;
        kv_tell_encode(&tell, &bytes);
        struct cut in = {bytes.data, bytes.len, false};
        PL_ASSERT(kv_tell_decode(&in, &back) == OK);
        PL_ASSERT(back.what == tell.what && back.request == tell.request);
        PL_ASSERT(memcmp(&back.meta, &tell.meta, sizeof back.meta) == 0);
        PL_ASSERT(back.count == tell.count && back.refusal.status == tell.refusal.status);
        PL_ASSERT(memcmp(back.node, tell.node, sizeof back.node) == 0);
        PL_ASSERT(strcmp(back.refusal.text, tell.refusal.text) == 0);
        buf_release(&bytes);
    }
}

static void hear_ask(struct kv_book *book, uint32_t node, struct cut in)
{
    struct kv_ask ask, back;
    struct buf bytes = {0};
    if (kv_ask_decode(&in, &ask) != OK)
        return;
    kv_ask_encode(&ask, &bytes);
    struct cut again = {bytes.data, bytes.len, false};
    PL_ASSERT(kv_ask_decode(&again, &back) == OK && back.what == ask.what);
    PL_ASSERT(back.request == ask.request && strcmp(back.key, ask.key) == 0);
    PL_ASSERT(memcmp(&back.meta, &ask.meta, sizeof ask.meta) == 0 && back.patient == ask.patient);
    buf_release(&bytes);
    const struct kv_event event = {.kind = ask.what,
                                   .node = node,
                                   .request = ask.request,
                                   .key = ask.key,
                                   .meta = ask.meta,
                                   .patient = ask.patient};
    PL_ASSERT(kv_book_step(book, &event, &out) == OK);
    judge_book(book);
    judge_orders();
}

static void hear_tell(struct cut in)
{
    struct kv_tell tell, back;
    struct buf bytes = {0};
    if (kv_tell_decode(&in, &tell) != OK)
        return;
    PL_ASSERT(tell.count <= KV_LOCATIONS && tell.meta.size <= KV_VALUE_MAX);
    for (uint32_t i = 0; i < tell.count; i++)
        PL_ASSERT(tell.node[i] < VIEW_MEMBERS_MAX && memchr(tell.address[i], 0, NODE_ADDRESS_MAX));
    kv_tell_encode(&tell, &bytes);
    struct cut again = {bytes.data, bytes.len, false};
    PL_ASSERT(kv_tell_decode(&again, &back) == OK && back.what == tell.what);
    PL_ASSERT(back.count == tell.count && back.refusal.status == tell.refusal.status);
    buf_release(&bytes);
}

static void hear_piece(struct cut in)
{
    struct kv_piece piece, back;
    struct buf bytes = {0};
    if (kv_piece_decode(&in, &piece) != OK)
        return;
    PL_ASSERT(piece.len > 0 && piece.len <= KV_PIECE && piece.at + piece.len <= KV_VALUE_MAX);
    PL_ASSERT(kv_key_check(piece.key, ERR_BUG, NULL) == OK);
    kv_piece_encode(&piece, &bytes);
    struct cut again = {bytes.data, bytes.len, false};
    PL_ASSERT(kv_piece_decode(&again, &back) == OK && strcmp(back.key, piece.key) == 0);
    PL_ASSERT(back.version == piece.version && back.at == piece.at && back.len == piece.len);
    buf_release(&bytes);
}

static void hear_view(struct kv_book *book, uint8_t bits)
{
    const struct members in = {{bits}};
    const struct kv_event event = {.kind = KV_MEMBERS, .members = &in};
    PL_ASSERT(kv_book_step(book, &event, &out) == OK && out.count == 0);
    judge_book(book);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct cut in = {bytes, n, false};
    struct kv_book book;
    enum kv_gone why;
    kv_book_init(&book);
    while (in.left > 0 && !in.failed) {
        uint8_t kind = cut_u8(&in), node = cut_u8(&in);
        if (kind == 4) {
            hear_view(&book, node);
            continue;
        }
        size_t len = cut_u8(&in);
        if (in.failed)
            break;
        len = len < in.left ? len : in.left;
        const uint8_t *at = cut_take(&in, len);
        uint8_t *own = malloc(len ? len : 1); /* a red zone follows each message */
        PL_ASSERT(own && at);
        memcpy(own, at, len);
        const struct cut message = {own, len, false};
        struct cut gone = message;
        if (kind == 0)
            hear_ask(&book, node % 16, message);
        else if (kind == 1)
            hear_tell(message);
        else if (kind == 2)
            hear_piece(message);
        else if (kv_gone_decode(&gone, &why) == OK)
            PL_ASSERT(why == KV_NOT_HERE || why == KV_BUSY);
        free(own);
    }
    kv_book_release(&book);
    return 0;
}
