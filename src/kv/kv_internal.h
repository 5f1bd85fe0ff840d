/* Declarations that the files of a node's side have in common: calls (client.c) go to the service
 * (service.c), which exchanges messages with the master (master.c), fetches (fetch.c) and serves
 * (serve.c). */
#ifndef PL_KV_KV_INTERNAL_H
#define PL_KV_KV_INTERNAL_H

#include "kv/client.h"
#include "kv/fetch_plan.h"
#include "kv/kv_message.h"

#include <stdatomic.h>

enum kv_call_kind {
    CALL_UPDATE,
    CALL_GET,
    CALL_WITHDRAW,
    CALL_REGISTER, /* the service's own: report a copy to the master */
};

struct kv_call {
    struct inbox_item link;
    struct kv *kv;
    enum kv_call_kind kind;
    char key[KV_KEY_MAX + 1];
    uint64_t version; /* wanted */
    bool patient;
    int64_t deadline;
    struct kv_value *value; /* UPDATE, REGISTER: the value; GET: the result */
    _Atomic int references; /* the caller's and the service's */
    atomic_bool cancelled, completed;
    _Atomic uint64_t have, size;
    struct err reported; /* how it ended, once it is answered: not written again */
    /* The service's: */
    struct kv_call *next;
    struct err err;     /* the error with which it would end */
    uint64_t request;   /* of the question that the master has not answered; 0: none */
    uint64_t requested; /* version, of that question */
    uint64_t room;      /* UPDATE: bytes of `coming` */
    bool given_up;      /* UPDATE: the caller has returned with ERR_TIMEOUT */
    int64_t retry_at;   /* when to send the master another request; 0: not */
    struct kv_fetch *fetch;
};

struct kv_call *kv_call_new(struct kv *kv, enum kv_call_kind kind, const char *key);
void kv_call_unref(struct kv_call *call);

/* ---- service.c: the task, with the kv as its argument; and, after its end, what it held ---- */

int kv_service_task(void *arg);
void kv_service_release(struct kv *kv);

/* Posts to the world, counted: each must have ended before `kv` is freed. */
int kv_post_recv(struct kv *kv, struct recv *recv);
int kv_post_send(struct kv *kv, struct send *send);

/* The call ends so: OK, or with its message; with `fail`, one is made if it has none. */
void kv_call_end(struct kv *kv, struct kv_call *call, int status);
void kv_call_fail(struct kv *kv, struct kv_call *call, int status);

/* The call ends well with this copy of the node. */
void kv_call_end_with(struct kv *kv, struct kv_call *call, const struct kv_copy *copy);

/* ---- master.c: what the master is asked and tells. ERR_NOMEM, ERR_CANCELLED ---- */

int kv_request_hold(struct kv *kv, struct kv_call *call);
int kv_request_find(struct kv *kv, struct kv_call *call);
int kv_request_forget(struct kv *kv, const struct kv_call *call);
int kv_request_leave(struct kv *kv);

/* ERR_PROTOCOL: the master is out of order */
int kv_on_reply(struct kv *kv, const struct message *m);

/* Report this node's copies to a master that does not know them yet. */
int kv_follow_view(struct kv *kv);

/* Keeps a fetched value, unless the store has a newer one. */
int kv_keep(struct kv *kv, struct kv_value *value);
int kv_withdraw_copy(struct kv *kv, const struct kv_value *value);

enum { KV_VERSION_TEXT = 40 };

/* "version 7", or "the newest version", as it is wanted. */
const char *kv_version_text(const struct kv_call *call, char text[KV_VERSION_TEXT]);

/* Readers since then may be reading still. */
int64_t kv_read_since(const struct kv *kv);

/* ---- fetch.c: one value on its way here ---- */

/* ERR_NOMEM, ERR_FULL (with the call's message) */
int kv_fetch_begin(struct kv *kv, struct kv_call *call, const struct kv_meta *meta);
void kv_fetch_end(struct kv_call *call); /* NULL fetch allowed */

/* Set the present holders. ERR_PROTOCOL (all of them sent wrong pieces); ERR_CANCELLED, ERR_NOMEM
 */
int kv_fetch_sources(struct kv_call *call, const struct kv_reply *reply);

/* Advance the fetch. OK: call->value is complete. POST_PENDING. ERR_NOT_FOUND: no holder is left.
 * ERR_PROTOCOL, with the call's message */
int kv_fetch_step(struct kv_call *call, int64_t now);

/* The value that is being fetched; NULL: none. */
const struct kv_meta *kv_fetch_meta(const struct kv_call *call);

/* When to step it at the latest, if nothing ends before. */
int64_t kv_fetch_wakes(const struct kv_call *call, int64_t now);

/* A holder does not send the piece of this number. false: not this fetch's */
bool kv_fetch_gone(struct kv_call *call, uint32_t from, uint32_t number, enum kv_gone why,
                   int64_t now);

/* ---- serve.c: pieces on their way to others ---- */

/* Serves a reader's request. ERR_CANCELLED, ERR_NOMEM */
int kv_serve(struct kv *kv, const struct message *m);
/* Free sends that have ended. */
void kv_serve_reap(struct kv *kv);
void kv_serve_release(struct kv *kv);

#endif
