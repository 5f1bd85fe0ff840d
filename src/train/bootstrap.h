/* The initial state of a run that does not draw it at random (a checkpoint or files of weights), on
 * its way to every worker.
 *
 * The driver alone has read it. The driver sends each part once, to one worker or another; all the
 * others get that part by the key-value store (Elastic, §5.3, Algorithm 5), from its holders by
 * then. So about one model passes the driver's link, however many workers there are, and two at
 * most pass each of theirs. For a worker that is gone the next one asks the driver.
 *
 * Nothing is asked for before the first view: who is in it is there, and knows where the others
 * are. */
#ifndef PL_TRAIN_BOOTSTRAP_H
#define PL_TRAIN_BOOTSTRAP_H

#include "kv/client.h"
#include "kv/kv_server.h"
#include "train/model.h"

/* ---- a worker's side ---- */

struct bootstrap {
    struct kv kv;  /* this worker's copies of parts, for the others */
    int64_t until; /* when nobody needs them any more, as far as time goes */
    struct task *end;
};

/* Ask the driver what there is: the progress, and which vectors; note->floats is 0. ERR_DRIVER,
 * ERR_CANCELLED, ERR_NOMEM, ERR_PROTOCOL */
int bootstrap_request(struct group *group, struct model_header *message);

/* Take all of it, `floats` in all, to `into`. Costs them twice in memory until it has been handed
 * on. Waits as long as the driver and the members live.
 * ERR_DRIVER, ERR_CANCELLED, ERR_NOMEM, ERR_PROTOCOL */
int bootstrap_take(struct bootstrap *b, struct group *group, float *into, size_t floats);

/* Between two steps: the copies go when everybody has begun, which a complete exchange of all
 * shows, or after some time. Never waits. */
void bootstrap_hand_on(struct bootstrap *b, struct world *world, bool all_have_begun);

/* The copies go, if they are still here. Before the group is released. */
void bootstrap_release(struct bootstrap *b, struct world *world);

/* ---- the driver's ---- */

struct bootstrap_server {
    struct group *group;
    struct model_header message; /* of all that there is */
    const float *vectors;        /* borrowed */
    struct kv_server store;
    struct task *task;
};

/* Give parts of it to members that ask. `giver` is large. ERR_NOMEM */
int bootstrap_serve(struct bootstrap_server *server);
void bootstrap_serve_stop(struct bootstrap_server *server);

#endif
