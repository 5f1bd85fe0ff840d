/* A node's side of the key-value store: its copies, calls on them, and what it serves to others.
 * (Elastic §5.3, Algorithm 5.)
 *
 * A service task owns the copies and speaks with the master and with other nodes; any number of
 * tasks may call at once, and hand over to it by an atomic list. A value arrives in pieces from up
 * to KV_LOCATIONS holders at once, straight at its destination. When a holder dies, hangs or no
 * longer has the value, the others deliver its pieces, and when none is left the client asks the
 * master again. It is taken when its checksum is the master's, and then this node is a holder, too.
 *
 * Costs. An update: the value copied and checksummed once, and a message of some hundred bytes each
 * way. A get of a version that is here: no message. Else the value's bytes once, a message of some
 * hundred bytes for every 256 KiB, and at most 2 MiB under way from each holder. */
#ifndef PL_KV_CLIENT_H
#define PL_KV_CLIENT_H

#include "group/master_service.h"
#include "kv/store.h"

enum kv_signal { SIGNAL_KV = 32, SIGNAL_KV_DONE = 33 };

/* All zero is fine. */
struct kv_options {
    uint64_t bytes_max; /* of values kept here and coming in; 0: 2⁶⁴ − 1 */
    int64_t slow;       /* ns without a piece after which a holder is given up; 0: 5 s */
    int64_t drain;      /* ns for which a replaced value is kept for its readers; 0: 5 s */
};

struct kv_call;
struct kv_serving;

struct kv {
    struct group *group;
    struct kv_options options;
    struct task *service;
    struct inbox inbox;
    _Atomic uint64_t requests;
    /* The service's: */
    struct kv_store store;
    struct kv_call *calls;    /* not ended yet */
    uint64_t coming;          /* bytes that room is kept for */
    uint32_t number;          /* number of the last requested piece */
    uint32_t incarnation;     /* incarnation of the master that knows all copies; 0: none */
    struct kv_serving *first; /* pieces on their way out */
    uint32_t servings;
    struct ended ended;
    uint64_t posts, moved; /* posts made; bytes whose cost was not charged yet (world->costs) */
};

/* Start the service. The node must listen to its driver, and need not be a member yet. ERR_NOMEM */
int kv_start(struct kv *kv, struct group *group, const struct kv_options *options);

/* Withdraw everything, and end. No call is under way. */
void kv_stop(struct kv *kv);

/* Make version state + 1 of key, of `size` bytes (copied), in place of the copy of it that this
 * node has. state 0: the first. OK when the master has recorded it.
 *
 * ERR_USAGE     a bad key, state or size; this node has a newer version already
 * ERR_REPLICAS  another node has that version with another checksum: nothing has changed
 * ERR_VIEW      this node is no member of the group (yet)
 * ERR_FULL      no more room in the master's table, or for so many bytes here
 * ERR_TIMEOUT   the master has not answered; it may still come to pass
 * ERR_DRIVER, ERR_NOMEM, ERR_CANCELLED */
int kv_update(struct kv *kv, const char *key, uint64_t state, const void *data, size_t size,
              int64_t deadline, struct err *err);

/* Drop this node's copy of key. ERR_NOT_FOUND, ERR_DRIVER, ERR_CANCELLED, ERR_NOMEM */
int kv_withdraw(struct kv *kv, const char *key, struct err *err);

struct kv_want {
    const char *key;
    uint64_t version; /* or KV_NEWEST */
    bool patient;     /* wait until a node holds it */
    int64_t deadline; /* of the whole call */
};

/* Begin to get a value, in the background. ERR_USAGE, ERR_NOMEM */
int kv_begin(struct kv *kv, const struct kv_want *want, struct kv_call **out, struct err *err);

/* Bytes received, and of the whole value; 0 of 0 while no holder is known. */
void kv_progress(const struct kv_call *call, uint64_t *have, uint64_t *size);

/* Wait for its end; the value is the caller's reference. Once OK, again OK. A newer version than
 * the value's may be here by then: that stays the node's copy.
 *
 * ERR_TIMEOUT    `deadline` has passed, and it is still under way; or its own has, and it is not
 * ERR_NOT_FOUND  nobody holds it, or nobody any more
 * ERR_PROTOCOL   what its holders send has not the master's checksum
 * ERR_FULL       no room for so many bytes; ERR_DRIVER, ERR_NOMEM, ERR_CANCELLED */
int kv_finish(struct kv_call *call, int64_t deadline, struct kv_value **out, struct err *err);

/* Forget it; cancelled, if it is under way. NULL allowed. */
void kv_end(struct kv_call *call);

/* The three in one. */
int kv_get(struct kv *kv, const struct kv_want *want, struct kv_value **out, struct err *err);

#endif
