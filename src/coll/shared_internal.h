/* Declarations that the files of shared variables have in common: items on atomic lists, and
 * messages.
 *
 *   ask (member → coordinator)             tell (coordinator → member)
 *     INIT    request, spec                  VAR     request, id, rounds done
 *     COMMIT  var, round, task               REFUSE  request, why
 *     ENDED   var, round, number, whole      START   view, var, round, lane, number, spec, nodes by
 *                                                    task
 * LEAVE                                  MAY_LEAVE
 *
 * each of one kind of message, begun with a byte that says which, so that they stay in order. */
#ifndef PL_COLL_SHARED_INTERNAL_H
#define PL_COLL_SHARED_INTERNAL_H

#include "coll/shared_vars.h"
#include "wire/wire_send.h"

enum shared_request_kind { REQUEST_INIT = 1, REQUEST_COMMIT, REQUEST_ENDED, REQUEST_LEAVE };
enum shared_report_kind { REPORT_VAR = 1, REPORT_REFUSAL, REPORT_START, REPORT_MAY_LEAVE };

enum shared_item_kind {
    ITEM_INIT,   /* a call → the service */
    ITEM_SUBMIT, /* a call → the service */
    ITEM_CLOSED, /* lane → service: no caller reads the round's vectors any more */
    ITEM_JOB,    /* the service → a lane */
};

struct shared_item {
    struct inbox_item link; /* in an inbox, or among the open requests */
    enum shared_item_kind kind;
    _Atomic int references; /* INIT: the caller's and the service's; others: one */
    struct shared_var *var; /* INIT: the reply */
    uint64_t round;
    uint32_t task;
    const float *x;
    /* INIT: */
    uint64_t request;
    struct tasks_spec spec;
    struct reduction reduction;
    struct err err; /* of the reply */
    atomic_bool has_reply;
    /* JOB: this node's vectors, in order of their tasks */
    uint64_t number;
    uint32_t count;
    const float *vector[];
};

/* With room for `count` vectors; NULL when memory runs out. */
struct shared_item *shared_item_new(enum shared_item_kind kind, uint32_t count);
void shared_item_unref(struct shared_item *item);

void shared_drop(struct shared_item *items);

/* To the coordinator; releases `bytes`. ERR_DRIVER, ERR_NOMEM */
int shared_request(struct shared *shared, struct buf *bytes);

/* Start the lane's task behind exchange `completed`, unless it runs. ERR_NOMEM */
int shared_lane_start(struct shared_lane *lane, uint64_t completed);
void shared_lane_stop(struct shared_lane *lane);

/* The service's task, with the struct shared as its argument; shared_service_release frees its
 * state after its end. */
int shared_service_task(void *arg);
void shared_service_release(struct shared *shared);

#endif
