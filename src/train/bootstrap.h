/* Distributes an initial state that is read from a checkpoint or from files of weights to all
 * workers.
 *
 * Only the driver has read it. The driver sends each part once, to one of the workers. All others
 * fetch that part through the key-value store (Elastic, §5.3, Algorithm 5) from its holders. So
 * about one model passes the driver's link, whatever the number of workers, and at most two pass
 * each worker's. When a worker dies, the next one requests its parts from the driver.
 *
 * A slice of a model fetches its own ranges from the driver, which may leave the state in its file.
 *
 * Workers request nothing before the first view, which tells them who the others are. */
#ifndef PL_TRAIN_BOOTSTRAP_H
#define PL_TRAIN_BOOTSTRAP_H

#include "kv/client.h"
#include "kv/kv_server.h"
#include "train/checkpoint_ranges.h"
#include "train/model.h"

/* ---- a worker's side ---- */

struct bootstrap {
    struct kv kv;  /* this worker's copies of parts */
    int64_t until; /* when the copies may be dropped, if no exchange tells it earlier */
    struct task *end;
};

/* Request the header: the progress, and which vectors there are; message->floats is 0. ERR_DRIVER,
 * ERR_CANCELLED, ERR_NOMEM, ERR_PROTOCOL */
int bootstrap_request(struct group *group, struct model_header *message);

/* Fetch the whole state, `floats` in all, into `into`. Uses twice its memory until
 * bootstrap_hand_on drops the copies. Waits as long as the driver and the members live. ERR_DRIVER,
 * ERR_CANCELLED, ERR_NOMEM, ERR_PROTOCOL */
int bootstrap_take(struct bootstrap *b, struct group *group, float *into, size_t floats);

/* Fetch `count` floats from offset `from` on, from the driver alone: of a model in slices, of which
 * no other worker has the same ones at hand. The same errors. */
int bootstrap_take_range(struct group *group, size_t from, size_t count, float *into);

/* Called between two steps: drop the copies when all have begun, which a complete exchange of all
 * shows, or after some time. Never waits. */
void bootstrap_hand_on(struct bootstrap *b, struct world *world, bool all_have_begun);

/* Drop the copies. Call it before the group is released. */
void bootstrap_release(struct bootstrap *b, struct world *world);

/* ---- the driver's ---- */

struct bootstrap_server {
    struct group *group;
    struct model_header message;            /* of all that there is */
    const float *vectors;                   /* borrowed; NULL: they are in a file, */
    const struct checkpoint_ranges *ranges; /* which is borrowed, too */
    struct kv_server store;
    struct task *task;
};

/* Start to send parts to members that request them. `server` is large. ERR_NOMEM */
int bootstrap_serve(struct bootstrap_server *server);
void bootstrap_serve_stop(struct bootstrap_server *server);

#endif
