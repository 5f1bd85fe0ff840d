/* Values that the members of a team share, by key and version (Elastic, §5.3, Algorithm 5): models,
 * optimizer state, schedules. They suit data that is equal on all members, must outlive any one
 * member, and is read whole by members that join late or fall behind.
 *
 *     pl_kv_update(kv, "x", state, x, bytes, 10);      makes version state + 1, here
 *     pl_kv_get(kv, &want, &value);                    any version that a member holds
 *
 * Members hold the values. The coordinator knows the holders of each version and its checksum: a
 * value of one key and version is the same everywhere, and a member that makes a different one gets
 * an error. A member that gets a value becomes one of its holders. The value arrives in pieces from
 * up to eight holders at once, so as fast as the links allow; when a holder dies, hangs or
 * withdraws the value, the others deliver the remaining pieces. It is taken when its checksum is
 * right.
 *
 * A member holds one version of a key: an update, or a newer version that it gets, takes the place
 * of the one it held (which it continues sending, for five seconds, to who is reading it). A
 * version disappears with its last holder; a member that leaves or dies takes what it alone had
 * with it.
 *
 * Costs. An update: one copy and a checksum of the value, and two messages of some hundred bytes,
 * to the coordinator and back. A get of a version that is here: nothing; of the newest, two
 * messages. Else the value's bytes once, and 100 bytes for every 256 KiB. Threads: one of a member,
 * from its first handle on, and one of the coordinator.
 *
 * Handles may be used by any number of threads at once, and live as long as their team; values and
 * fetches are freed by the caller. */
#ifndef PACELINE_KV_H
#define PACELINE_KV_H

#include "paceline/team.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_KV_KEY_MAX 63         /* characters, printable ASCII without blanks */
#define PL_KV_MAX     1024       /* versions of keys that the team holds at once */
#define PL_KV_NEWEST  UINT64_MAX /* in place of a version: the newest that a member holds */

typedef struct pl_kv pl_kv;
typedef struct pl_kv_value pl_kv_value;
typedef struct pl_kv_fetch pl_kv_fetch;

/* A handle on the team's values, with a message of its own. PL_ERR_NOMEM, PL_ERR_BUG (in
 * pl_engine_error) */
int pl_kv_open(pl_team *team, pl_kv **out);

/* Message of the last call on this handle that failed, cut to `size` characters with the zero. */
void pl_kv_error(pl_kv *kv, char *text, size_t size);

/* Make version state + 1 of key: `size` bytes (≤ 4 GiB), copied. state is the version it was made
 * from, 0 for the first. Waits for the coordinator's reply, at most timeout_s seconds (negative:
 * for ever). Making an existing version again with the same bytes is allowed: this member becomes a
 * holder, too.
 *
 * PL_ERR_USAGE     a bad key, state or size; this member holds a newer version
 * PL_ERR_REPLICAS  the version exists with other bytes; the message names a holder. Nothing
 *                  has changed
 * PL_ERR_FULL      the team holds PL_KV_MAX versions, or this member has no bytes left
 * PL_ERR_TIMEOUT   no reply in time; the update may still succeed
 * PL_ERR_PEER      the team is over; PL_ERR_NOMEM */
int pl_kv_update(pl_kv *kv, const char *key, uint64_t state, const void *value, size_t size,
                 double timeout_s);

/* This member stops holding the value of the key. PL_ERR_NOT_FOUND, PL_ERR_PEER, PL_ERR_NOMEM */
int pl_kv_withdraw(pl_kv *kv, const char *key);

typedef struct pl_kv_want {
    size_t size; /* sizeof this struct */
    const char *key;
    uint64_t version; /* ≥ 1, or PL_KV_NEWEST */
    int wait;         /* wait until a member holds it; else PL_ERR_NOT_FOUND at once */
    double timeout_s; /* seconds for the whole call; negative: for ever */
} pl_kv_want;

/* A value: this member's own copy, or else from other holders. The caller frees it; it does not
 * change when the store does.
 *
 * PL_ERR_NOT_FOUND  no member holds it, or not any more
 * PL_ERR_TIMEOUT    the message states the bytes received, or that no member holds it
 * PL_ERR_FULL       it is larger than what this member may still keep
 * PL_ERR_PEER       the team is over; or its holders sent bytes with a wrong checksum
 * PL_ERR_USAGE, PL_ERR_NOMEM */
int pl_kv_get(pl_kv *kv, const pl_kv_want *want, pl_kv_value **out);

/* The same in the background: while a step computes, or to see how far it is. `want` is copied.
 * PL_ERR_USAGE, PL_ERR_NOMEM */
int pl_kv_begin(pl_kv *kv, const pl_kv_want *want, pl_kv_fetch **out);

/* Bytes received, and of the whole; 0 of 0 while no holder is known. */
void pl_kv_progress(const pl_kv_fetch *fetch, uint64_t *have, uint64_t *size);

/* Wait for its end, at most timeout_s seconds; errors as pl_kv_get's. PL_ERR_TIMEOUT: it is still
 * under way, or the want's own time is up: then again at once. */
int pl_kv_finish(pl_kv_fetch *fetch, double timeout_s, pl_kv_value **out);

/* Free the fetch, and cancel it if it is under way. Call it before the team is closed. NULL is
 * allowed. */
void pl_kv_end(pl_kv_fetch *fetch);

/* The bytes, aligned for any number; how many; of which version. Valid until it is freed. */
const void *pl_kv_data(const pl_kv_value *value);
size_t pl_kv_size(const pl_kv_value *value);
uint64_t pl_kv_version(const pl_kv_value *value);
void pl_kv_free(pl_kv_value *value); /* NULL is allowed; also after the team is closed */

#ifdef __cplusplus
}
#endif
#endif
