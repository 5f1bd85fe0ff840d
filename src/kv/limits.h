/* Bounds of the store's tables; wire/wire_limits.h has those of its messages. */
#ifndef PL_KV_LIMITS_H
#define PL_KV_LIMITS_H

#include "group/view.h"

enum {
    KV_ENTRIES_MAX = 1024,  /* versions of keys with a holder; copies on a node */
    KV_WAITS_MAX = 2048,    /* readers that wait for a version */
    KV_WINDOW = 8,          /* pieces that a reader wants from one holder at once */
    KV_SERVINGS_MAX = 1024, /* pieces that a holder is sending at once */
    KV_SERVINGS_EACH = 128, /* of them to one reader, so that a slow reader delays no other */
    KV_RETIRED_MAX = 8,     /* replaced values of a node that others still read */
};

/* The holders of one version are members of the view: VIEW_MEMBERS_MAX at most. */

#define KV_VERSION_MAX (UINT64_MAX - 1)
#define KV_NEWEST      UINT64_MAX /* in place of a version: the newest that a node holds */

/* OK, or `status` with a message that names the fault of the key. */
int kv_key_check(const char *key, int status, struct err *err);

#endif
