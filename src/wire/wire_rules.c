#include "wire/wire_rules.h"

#include "base/fault.h"

_Static_assert((int)WIRE_VIEW_MAX <= (int)WORLD_MESSAGE_MAX &&
                   (int)WIRE_TEXT_MAX >=
                       2 * (int)ERR_TEXT_MAX + WORKER_HOST_MAX + NODE_ADDRESS_MAX &&
                   (int)WIRE_VIEW_MAX >= VIEW_MEMBERS_MAX * (NODE_ADDRESS_MAX + 8) + 1024 &&
                   (int)WIRE_REPORT_MAX >= HOLDINGS_MAX * 64 + GROUP_REPORT * 8 + 4096,
               "the texts, members and ranges that may be sent fit their messages");

enum {
    ENDS = WAY_TO_DRIVER | WAY_TO_WORKER,
    MEMBERS = ENDS | WAY_BETWEEN,
    PARTS = WAY_TO_DRIVER | WAY_SELF,     /* the driver's own part is a sender, */
    OF_DRIVER = WAY_TO_WORKER | WAY_SELF, /* or a receiver */
    LEAST_TEXT = 4,                       /* its length */
};

static const struct wire_rule rules[WIRE_KIND_COUNT] = {
    [WIRE_HELLO] = {WAY_TO_DRIVER, 0, WIRE_REPORT_MAX},
    [WIRE_WELCOME] = {WAY_TO_WORKER, 0, WORLD_MESSAGE_MAX},
    [WIRE_REFUSED] = {WAY_TO_WORKER, 0, WIRE_TEXT_MAX},
    [WIRE_CONNECT_CHECK] = {WAY_TO_DRIVER, 0, WIRE_TEXT_MAX},
    [WIRE_CONNECT_RESULT] = {WAY_TO_WORKER, 0, WIRE_VIEW_MAX},
    [WIRE_VIEW] = {WAY_TO_WORKER, 0, WIRE_VIEW_MAX},
    [WIRE_HEARTBEAT] = {WAY_TO_DRIVER, 17, 17},
    [WIRE_LOST] = {WAY_TO_DRIVER, 4, 4},
    [WIRE_ADMIT_JOINER] = {OF_DRIVER, 5, 5},
    [WIRE_DONOR_READY] = {PARTS, 4, 4},
    [WIRE_JOIN_COMPLETE] = {WAY_TO_DRIVER, 4, 4},
    [WIRE_PART] = {WAY_TO_WORKER, 0, 0},
    [WIRE_LEAVE] = {WAY_TO_DRIVER, 1, 1},
    [WIRE_LANE_AT] = {PARTS, 21, 21},
    [WIRE_LANE_GO] = {OF_DRIVER, 0, WIRE_TEXT_MAX},
    [WIRE_LINK_CHECK] = {ENDS, 4, 12},
    [WIRE_LINK_REPORT] = {WAY_TO_DRIVER, 32, 32},
    [WIRE_LEAF_READY] = {WAY_TO_DRIVER, 0, 0},
    [WIRE_COMMITTED] = {WAY_TO_DRIVER, 0, WIRE_REPORT_MAX},
    [WIRE_STOP] = {WAY_TO_WORKER, 0, 0},
    [WIRE_DONE] = {PARTS, 0, WIRE_TEXT_MAX},
    [WIRE_WANT_MODEL] = {ENDS, 4, 16},
    [WIRE_BYE] = {WAY_TO_WORKER, 0, WIRE_WORDS_MAX},
    [WIRE_EVENT] = {WAY_SELF, 0, WORLD_MESSAGE_MAX},
    [WIRE_REDUCE] = {MEMBERS, 0, WORLD_MESSAGE_MAX},
    [WIRE_BROADCAST] = {MEMBERS, 0, WORLD_MESSAGE_MAX},
    [WIRE_RESULT] = {MEMBERS, 0, WORLD_MESSAGE_MAX},
    [WIRE_PROBE] = {MEMBERS, 0, WORLD_MESSAGE_MAX},
    [WIRE_SHARED_REQUEST] = {PARTS, 0, WORLD_MESSAGE_MAX},
    [WIRE_SHARED_REPORT] = {OF_DRIVER, 0, WORLD_MESSAGE_MAX},
    [WIRE_MODEL] = {WAY_ANY, 0, WORLD_MESSAGE_MAX},
    [WIRE_TRANSFER] = {WAY_ANY, 0, WORLD_MESSAGE_MAX},
    [WIRE_TRANSFER_GO] = {WAY_ANY, 0, WIRE_WORDS_MAX},
    [WIRE_TRACE] = {PARTS, 0, WORLD_MESSAGE_MAX},
    [WIRE_KV_REQUEST] = {PARTS, 0, WIRE_TEXT_MAX},
    [WIRE_KV_REPLY] = {OF_DRIVER, 0, WIRE_TEXT_MAX},
    [WIRE_KV_FETCH] = {WAY_ANY, 0, WIRE_TEXT_MAX},
    [WIRE_KV_PIECE] = {WAY_ANY, 0, KV_PIECE},
    [WIRE_KV_GONE] = {WAY_ANY, 1, 1},
    [WIRE_BEAT] = {WAY_TO_WORKER, 8 * GROUP_TOTALS, 8 * GROUP_TOTALS},
    [WIRE_RETURN] = {WAY_TO_DRIVER, 0, WIRE_VIEW_MAX},
    [WIRE_REJOIN] = {WAY_TO_WORKER, 0, 0},
    [WIRE_LEASE] = {WAY_TO_WORKER, 0, WIRE_TEXT_MAX},
    [WIRE_SHARE] = {WAY_TO_WORKER, 0, WIRE_REPORT_MAX},
    [WIRE_OPENING] = {ENDS | WAY_SELF, 0, WIRE_TEXT_MAX},
    [WIRE_BAD_RECORD] = {WAY_TO_DRIVER, 0, WIRE_TEXT_MAX},
    [WIRE_REJECTED] = {PARTS, 17, 17},
};

const struct wire_rule *wire_rule_of(enum wire_kind kind)
{
    PL_ASSERT(kind > WIRE_NONE && kind < WIRE_KIND_COUNT);
    return &rules[kind];
}

enum wire_way wire_way(uint32_t from, uint32_t to)
{
    return from == to             ? WAY_SELF
           : to == WORLD_DRIVER   ? WAY_TO_DRIVER
           : from == WORLD_DRIVER ? WAY_TO_WORKER
                                  : WAY_BETWEEN;
}

const char *wire_fault(uint32_t from, uint32_t to, uint64_t tag, size_t len)
{
    enum wire_kind kind = wire_kind_of(tag);
    if (kind == WIRE_NONE)
        return "there is no such kind";
    if (!(rules[kind].ways & wire_way(from, to)))
        return "it may not send this kind here";
    if (len < rules[kind].least || len > rules[kind].most)
        return "it has a length that this kind has not";
    return NULL;
}

/* ---- the guard ---- */

static _Atomic uint8_t *errors_of(struct wire_guard *guard, uint32_t peer)
{
    return peer == WORLD_DRIVER ? &guard->driver_errors : &guard->errors[peer % VIEW_MEMBERS_MAX];
}

void wire_guard_count(struct wire_guard *guard, uint32_t from, enum wire_kind kind,
                      const char *what)
{
    uint8_t errors = (uint8_t)(atomic_fetch_add(errors_of(guard, from), 1) + 1);
    const char *name = wire_kind_name(kind);
    atomic_fetch_add(&guard->dropped, 1);
    PL_ASSERT(from != guard->of->self); /* what a node sends itself is right */
    if (errors < WIRE_ERRORS_MAX) {
        log_warn(guard->log, "node %d: its message %s is dropped: %s (error %u of %d)",
                 from == WORLD_DRIVER ? -1 : (int)from, name, what, errors, WIRE_ERRORS_MAX);
        return;
    }
    if (errors == WIRE_ERRORS_MAX)
        log_warn(guard->log, "node %d is disconnected: its message %s is its error %u: %s",
                 from == WORLD_DRIVER ? -1 : (int)from, name, errors, what);
    if (errors == UINT8_MAX) /* the count continues from the limit */
        atomic_store(errors_of(guard, from), WIRE_ERRORS_MAX);
    world_peer_drop(guard->of, from);
}

static bool judge_message(struct world_guard *world, const struct message *m)
{
    struct wire_guard *guard = (struct wire_guard *)world;
    const char *fault = NULL;
    if (m->from != guard->of->self)
        fault = wire_fault(m->from, guard->of->self, m->tag, m->len);
    if (fault)
        wire_guard_count(guard, m->from, wire_kind_of(m->tag), fault);
    return !fault;
}

void wire_guard_start(struct wire_guard *guard, struct world *world, const struct logger *log)
{
    guard->world.accepts = judge_message;
    guard->of = world;
    guard->log = log;
    atomic_store(&world->guard, &guard->world);
}

void wire_guard_stop(struct wire_guard *guard)
{
    if (guard->of)
        atomic_store(&guard->of->guard, NULL);
}

void wire_guard_forget(struct wire_guard *guard, uint32_t peer)
{
    atomic_store(errors_of(guard, peer), 0);
}
