/* The rules of messages: who sends a kind to whom, and how long it may be. And a node's guard,
 * which counts the messages of others that break them.
 *
 * The guard judges each message before a task receives it. A message that breaks a rule is
 * dropped, logged and counted; so is one that its receiver finds to be wrong (wire_guard_count): it
 * cannot be read, or its sender is not in a state to send it. At its third error a peer is
 * disconnected. A message that a member sent while it was one, and that arrives when it is not any
 * more, is no error. */
#ifndef PL_WIRE_WIRE_RULES_H
#define PL_WIRE_WIRE_RULES_H

#include "base/logger.h"
#include "wire/catalogue.h"
#include "wire/wire_limits.h"
#include "world/world.h"

/* The ends of a message, as bits. */
enum wire_way {
    WAY_TO_DRIVER = 1, /* worker → driver */
    WAY_TO_WORKER = 2, /* driver → worker */
    WAY_BETWEEN = 4,   /* worker → another worker */
    WAY_SELF = 8,      /* a node to itself */
    WAY_ANY = 15,
};

struct wire_rule {
    uint32_t ways;
    size_t least, most; /* bytes */
};

/* That of a kind other than WIRE_NONE. */
const struct wire_rule *wire_rule_of(enum wire_kind kind);

/* The way from one node to another. */
enum wire_way wire_way(uint32_t from, uint32_t to);

/* May `from` send `to` a message with that tag and so many bytes? NULL: yes; else what is wrong. */
const char *wire_fault(uint32_t from, uint32_t to, uint64_t tag, size_t len);

enum { WIRE_ERRORS_MAX = 3 };

struct wire_guard {
    struct world_guard world; /* first */
    struct world *of;
    const struct logger *log;                 /* NULL: silent */
    _Atomic uint8_t errors[VIEW_MEMBERS_MAX]; /* of each worker, since it connected, */
    _Atomic uint8_t driver_errors;            /* and of the driver; not of the node itself */
    _Atomic uint64_t dropped;                 /* of all */
};

/* Guard the node from now on, until wire_guard_stop. Other tasks may wait meanwhile. */
void wire_guard_start(struct wire_guard *guard, struct world *world, const struct logger *log);
void wire_guard_stop(struct wire_guard *guard);

/* Count an error of `from`: `what` is wrong with a message of that kind, which the caller drops.
 * From any task. */
void wire_guard_count(struct wire_guard *guard, uint32_t from, enum wire_kind kind,
                      const char *what);

/* A peer has connected: its errors are counted from 0. */
void wire_guard_forget(struct wire_guard *guard, uint32_t peer);

#endif
