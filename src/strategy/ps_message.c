#include "strategy/ps_message.h"

#include "base/fault.h"

#include <string.h>

/* ---- messages ---- */

/* A message about several members is as long as the highest of them requires. */
size_t ps_port_encode(const struct ps_port *port, const struct ps_message *message, uint8_t *out)
{
    uint64_t word[PS_MESSAGE_MAX / 8] = {
        (uint64_t)message->op << 32 | message->flags,
        (uint64_t)message->node << 32 | message->shard,
        (uint64_t)ps_port_view(port) << 32 | port->epoch,
        message->number,
        message->version,
        message->samples,
        0,
        (uint64_t)message->ns,
    };
    size_t words = PS_MESSAGE_MAX / 8;
    memcpy(&word[6], &message->t, sizeof message->t);
    memcpy(&word[PS_MESSAGE_HEAD / 8], message->members.word, sizeof message->members.word);
    while (words > PS_MESSAGE_HEAD / 8 && word[words - 1] == 0)
        words--;
    for (size_t i = 0; i < words; i++)
        bytes_put_le64(out + 8 * i, word[i]);
    return 8 * words;
}

int ps_message_decode(struct byte_reader in, struct ps_message *out)
{
    uint64_t op = read_u64(&in), where = read_u64(&in), when = read_u64(&in);
    *out = (struct ps_message){.op = (enum ps_op)(op >> 32),
                               .flags = (uint32_t)op,
                               .node = (uint32_t)(where >> 32),
                               .shard = (uint32_t)where,
                               .view = (uint32_t)(when >> 32),
                               .epoch = (uint32_t)when};
    out->number = read_u64(&in);
    out->version = read_u64(&in);
    out->samples = read_u64(&in);
    out->t = read_f64(&in);
    out->ns = (int64_t)read_u64(&in);
    for (int i = 0; i < MEMBER_WORDS && in.left > 0; i++)
        out->members.word[i] = read_u64(&in);
    return byte_reader_done(&in) && out->op >= PS_PUSH && out->op <= PS_RESUME ? OK : ERR_PROTOCOL;
}

/* ---- which node serves a shard ---- */

_Static_assert((int)MEMBER_WORDS <= (int)JOIN_STATE_WORDS, "a donor knows the first members");

/* A donor's words come from another node: without first members no node would serve a shard. */
int ps_placement_init(struct ps_placement *placement, const struct group *group, uint32_t servers,
                      bool colocated, const struct join_state *join)
{
    struct ps_placement made = {
        .on_workers = colocated || servers > 1,
        .first = view_members(group_first_view(group)),
        .now = join ? group_view(group) : group_first_view(group),
    };
    if (join)
        memcpy(made.first.word, join->word, sizeof made.first.word);
    made.shards = colocated ? members_count(&made.first) : servers;
    bool sound = made.shards > 0 && made.shards <= PS_SHARDS_MAX && !members_empty(&made.first);
    if (join && (!sound || join->words != MEMBER_WORDS)) {
        log_error(group->log,
                  "join state of a parameter server: %u words with %zu first workers; expected %d "
                  "words with 1 to %d workers, so this worker does not join",
                  join->words, members_count(&made.first), MEMBER_WORDS, PS_SHARDS_MAX);
        return ERR_PROTOCOL;
    }
    PL_ASSERT(sound);
    *placement = made;
    return OK;
}

/* The next elder on a circle of all numbers: a shard moves when its server is gone, and then only,
 * since a view has no new elders while one of the earlier ones is there. */
uint32_t ps_placement_host(const struct ps_placement *placement, size_t shard)
{
    if (!placement->on_workers)
        return WORLD_DRIVER;
    const struct members *elders = &placement->now->elders;
    uint32_t node = members_next(&placement->first, 0);
    for (size_t i = shard % members_count(&placement->first); i > 0; i--)
        node = members_next(&placement->first, node + 1);
    node = members_next(elders, node);
    if (node == VIEW_MEMBERS_MAX)
        node = members_next(elders, 0);
    return node == VIEW_MEMBERS_MAX ? WORLD_ANY : node;
}

/* ---- one end ---- */

void ps_port_init(struct ps_port *port, struct group *group, uint32_t lane,
                  const struct ps_placement *placement, size_t chunk)
{
    *port = (struct ps_port){.placement = *placement};
    transfers_init(&port->transfers, group->world, group, lane);
    port->transfers.chunk = chunk;
}

int ps_port_await_view(const struct ps_port *port, const struct ps_message *message)
{
    struct group *group = port->transfers.group;
    if (message->view <= ps_port_view(port))
        return OK;
    return group_wait_view(group, message->view - 1, world_now(group->world) + group->timing.piece);
}

void ps_send_floats(struct ps_port *port, struct transfer *transfer,
                    const struct ps_message *message, struct transfer_out what)
{
    uint8_t bytes[PS_MESSAGE_MAX];
    what.header = bytes;
    what.header_len = ps_port_encode(port, message, bytes);
    transfer_send(transfer, &port->transfers, &what);
}

static int send_notice(struct ps_port *port, uint32_t to, uint32_t lane,
                       const struct ps_message *message)
{
    uint8_t bytes[PS_MESSAGE_MAX];
    return transfer_notify(&port->transfers, to, lane, bytes, ps_port_encode(port, message, bytes));
}

int ps_send_worker(struct ps_port *port, uint32_t node, const struct ps_message *message)
{
    return send_notice(port, node, PS_LANE_WORKER, message);
}

int ps_send_shard(struct ps_port *port, size_t shard, const struct ps_message *message)
{
    return send_notice(port, ps_placement_host(&port->placement, shard),
                       PS_LANE_SERVER + (uint32_t)shard, message);
}
