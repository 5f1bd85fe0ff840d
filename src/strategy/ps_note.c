#include "strategy/ps_note.h"

#include <string.h>

/* Who has to say something about many: as far as the highest of them. */
static bool has_who(enum ps_op op)
{
    return op == PS_APPLY || op == PS_DROP || op == PS_PART || op == PS_GIVEN;
}

size_t ps_note_encode(const struct ps_note *note, uint8_t *out)
{
    uint64_t t;
    memcpy(&t, &note->t, sizeof t);
    const uint64_t head[PS_NOTE_HEAD / 8] = {
        (uint64_t)note->op << 32 | note->flags,
        (uint64_t)note->node << 32 | note->shard,
        note->view,
        note->number,
        note->version,
        note->samples,
        t,
        (uint64_t)note->ns,
    };
    for (int i = 0; i < PS_NOTE_HEAD / 8; i++)
        bytes_put_le64(out + 8 * i, head[i]);
    if (!has_who(note->op))
        return PS_NOTE_HEAD;
    int words = MEMBER_WORDS;
    while (words > 0 && note->who.word[words - 1] == 0)
        words--;
    for (int i = 0; i < words; i++)
        bytes_put_le64(out + PS_NOTE_HEAD + 8 * i, note->who.word[i]);
    return PS_NOTE_HEAD + 8 * (size_t)words;
}

int ps_note_decode(struct byte_reader in, struct ps_note *out)
{
    uint64_t op = read_u64(&in), where = read_u64(&in), view = read_u64(&in);
    *out = (struct ps_note){.op = (enum ps_op)(op >> 32),
                            .flags = (uint32_t)op,
                            .node = (uint32_t)(where >> 32),
                            .shard = (uint32_t)where,
                            .view = (uint32_t)view};
    out->number = read_u64(&in);
    out->version = read_u64(&in);
    out->samples = read_u64(&in);
    out->t = read_f64(&in);
    out->ns = (int64_t)read_u64(&in);
    for (int i = 0; i < MEMBER_WORDS && has_who(out->op) && in.left > 0; i++)
        out->who.word[i] = read_u64(&in);
    return byte_reader_done(&in) && out->op >= PS_PUSH && out->op <= PS_KNOWN ? OK : ERR_PROTOCOL;
}

struct ps_slot {
    struct transfer parcel;
    struct ps_slot *next;
};

void ps_post_init(struct ps_post *post, struct world *world, struct group *group, uint32_t lane)
{
    transfers_init(&post->parcels, world, group, lane);
    arena_init(&post->arena);
    post->slots = NULL;
}

void ps_post_close(struct ps_post *post)
{
    if (!post->parcels.world)
        return;
    transfers_close(&post->parcels);
    arena_release(&post->arena);
    post->slots = NULL;
}

/* One that is free. Only so many are ever under way: each worker waits for what it has asked. */
static struct ps_slot *free_slot(struct ps_post *post)
{
    for (struct ps_slot *slot = post->slots; slot; slot = slot->next)
        if (slot->parcel.status != POST_PENDING)
            return slot;
    struct ps_slot *slot = arena_new(&post->arena, struct ps_slot);
    if (slot) {
        slot->next = post->slots;
        post->slots = slot;
    }
    return slot;
}

int ps_post_tell(struct ps_post *post, uint32_t to, uint32_t lane, const struct ps_note *note)
{
    uint8_t bytes[PS_NOTE_MAX];
    struct ps_slot *slot = free_slot(post);
    if (!slot)
        return ERR_NOMEM;
    const struct transfer_out out = {
        .to = to, .lane = lane, .header = bytes, .header_len = ps_note_encode(note, bytes)};
    transfer_send(&slot->parcel, &post->parcels, &out);
    return OK;
}

bool ps_post_busy(const struct ps_post *post)
{
    for (const struct ps_slot *slot = post->slots; slot; slot = slot->next)
        if (slot->parcel.status == POST_PENDING)
            return true;
    return false;
}
