#include "strategy/ps_message.h"

#include "base/fault.h"

#include <string.h>

/* A message about several members is as long as the highest of them requires. */
static bool has_members(enum ps_op op)
{
    return op == PS_APPLY || op == PS_DROP || op == PS_SHOW || op == PS_TAKE;
}

size_t ps_message_encode(const struct ps_message *message, uint8_t *out)
{
    uint64_t t;
    memcpy(&t, &message->t, sizeof t);
    const uint64_t head[PS_MESSAGE_HEAD / 8] = {
        (uint64_t)message->op << 32 | message->flags,
        (uint64_t)message->node << 32 | message->shard,
        message->view,
        message->number,
        message->version,
        message->samples,
        t,
        (uint64_t)message->ns,
    };
    for (int i = 0; i < PS_MESSAGE_HEAD / 8; i++)
        bytes_put_le64(out + 8 * i, head[i]);
    if (!has_members(message->op))
        return PS_MESSAGE_HEAD;
    int words = MEMBER_WORDS;
    while (words > 0 && message->members.word[words - 1] == 0)
        words--;
    for (int i = 0; i < words; i++)
        bytes_put_le64(out + PS_MESSAGE_HEAD + 8 * i, message->members.word[i]);
    return PS_MESSAGE_HEAD + 8 * (size_t)words;
}

int ps_message_decode(struct byte_reader in, struct ps_message *out)
{
    uint64_t op = read_u64(&in), where = read_u64(&in), view = read_u64(&in);
    *out = (struct ps_message){.op = (enum ps_op)(op >> 32),
                               .flags = (uint32_t)op,
                               .node = (uint32_t)(where >> 32),
                               .shard = (uint32_t)where,
                               .view = (uint32_t)view};
    out->number = read_u64(&in);
    out->version = read_u64(&in);
    out->samples = read_u64(&in);
    out->t = read_f64(&in);
    out->ns = (int64_t)read_u64(&in);
    for (int i = 0; i < MEMBER_WORDS && has_members(out->op) && in.left > 0; i++)
        out->members.word[i] = read_u64(&in);
    return byte_reader_done(&in) && out->op >= PS_PUSH && out->op <= PS_RESUME ? OK : ERR_PROTOCOL;
}

struct ps_slot {
    struct transfer transfer;
    struct ps_slot *next;
};

void ps_sender_init(struct ps_sender *sender, struct world *world, struct group *group,
                    uint32_t lane)
{
    transfers_init(&sender->transfers, world, group, lane);
    arena_init(&sender->arena);
    sender->slots = NULL;
}

void ps_sender_close(struct ps_sender *sender)
{
    if (!sender->transfers.world)
        return;
    transfers_close(&sender->transfers);
    arena_release(&sender->arena);
    sender->slots = NULL;
}

/* A free slot. Their number is bounded, since each worker waits for its own requests. */
static struct ps_slot *free_slot(struct ps_sender *sender)
{
    for (struct ps_slot *slot = sender->slots; slot; slot = slot->next)
        if (slot->transfer.status != POST_PENDING)
            return slot;
    struct ps_slot *slot = arena_new(&sender->arena, struct ps_slot);
    if (slot) {
        slot->next = sender->slots;
        sender->slots = slot;
    }
    return slot;
}

void ps_sender_send_vec(struct ps_sender *sender, struct transfer *transfer, uint32_t to,
                        uint32_t lane, const struct ps_message *message, const struct vec *vec)
{
    uint8_t bytes[PS_MESSAGE_MAX];
    const struct transfer_out out = {.to = to,
                                     .lane = lane,
                                     .x = vec->at,
                                     .n = vec->n,
                                     .header = bytes,
                                     .header_len = ps_message_encode(message, bytes)};
    transfer_send(transfer, &sender->transfers, &out);
}

int ps_sender_send(struct ps_sender *sender, uint32_t to, uint32_t lane,
                   const struct ps_message *message)
{
    struct ps_slot *slot = free_slot(sender);
    if (slot)
        ps_sender_send_vec(sender, &slot->transfer, to, lane, message, &(struct vec){0});
    return slot ? OK : ERR_NOMEM;
}

bool ps_sender_busy(const struct ps_sender *sender)
{
    for (const struct ps_slot *slot = sender->slots; slot; slot = slot->next)
        if (slot->transfer.status == POST_PENDING)
            return true;
    return false;
}

/* ---- which node serves a shard ---- */

_Static_assert((int)MEMBER_WORDS <= (int)JOIN_STATE_WORDS, "a donor knows the first members");

struct ps_placement ps_placement_of(const struct group *group, uint32_t servers, bool colocated,
                                    const struct join_state *join)
{
    struct ps_placement placement = {
        .on_workers = colocated || servers > 1,
        .first = view_members(group_first_view(group)),
        .now = join ? group_view(group) : group_first_view(group),
    };
    if (join)
        memcpy(placement.first.word, join->word, sizeof placement.first.word);
    placement.shards = colocated ? members_count(&placement.first) : servers;
    PL_ASSERT(placement.shards > 0 && placement.shards <= PS_SHARDS_MAX);
    return placement;
}

/* A shard moves only when its server is gone: a joiner has a higher number than all members. */
uint32_t ps_placement_host(const struct ps_placement *placement, size_t shard)
{
    if (!placement->on_workers)
        return WORLD_DRIVER;
    const struct members now = view_members(placement->now);
    const struct members left = members_intersection(&placement->first, &now);
    uint32_t node = members_next(&placement->first, 0);
    for (size_t i = shard % members_count(&placement->first); i > 0; i--)
        node = members_next(&placement->first, node + 1);
    node = members_next(&left, node);
    if (node == VIEW_MEMBERS_MAX)
        node = members_next(members_empty(&left) ? &now : &left, 0);
    return node == VIEW_MEMBERS_MAX ? WORLD_ANY : node;
}
