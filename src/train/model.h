/* Sends a copy of a model for an evaluation, a checkpoint or a joiner: the progress, then the
 * vectors in pieces. The messages belong to no view, so a view change does not stop them. */
#ifndef PL_TRAIN_MODEL_H
#define PL_TRAIN_MODEL_H

#include "strategy/strategy.h"

/* The use of a requested model. */
enum model_use {
    MODEL_EVALUATE = 1,
    MODEL_CHECKPOINT = 2,
    MODEL_FINAL = 4,
    MODEL_URGENT = 16,  /* also within a round, where the global model is known there */
    MODEL_SNAPSHOT = 8, /* for readers of Caffe's files (snapshot.h) */
    /* Alone: the states of the sender's streams (stream_parts.h), and no model. With another use:
     * those of all sharers belong to the model, and each sends its own. */
    MODEL_STREAMS = 32,
};

#define MODEL_PAUSE_MAX (60 * WORLD_SECOND) /* between two pieces of one */

struct model_header {
    struct progress progress;
    uint32_t use;                /* model_use, or-ed; 0: to start from */
    bool has_state;              /* the optimizer's vectors follow x and s */
    bool has_extra;              /* and then the strategy's, */
    bool has_carried;            /* and the state that the sender's streams carry */
    uint64_t floats;             /* that follow */
    uint64_t updates;            /* that made the optimizer's vectors */
    struct join_state admission; /* for a joiner; else all 0 */
    /* Of a model in slices: no vectors follow, but each slice of the sender's replica in that view
     * has its part of them, to be taken (model_parts.h). 0: vectors follow. */
    uint32_t parts_in;
    struct model_scores scores; /* of that model */
};

/* A model being sent by a task of its own, from a copy, so that training continues. */
struct publisher {
    struct world *world;
    uint32_t reader; /* the identity that a reader presents */
    uint32_t to;     /* receiver of the present copy */
    size_t extras;   /* vectors, where a global model brings them */
    struct model_header header;
    float *copy;
    size_t room; /* floats */
    struct task *task;
    atomic_bool busy;
};

/* Room for a copy of `floats` from the arena; a strategy's own vectors are `extras`. ERR_NOMEM */
int publisher_init(struct publisher *p, struct world *world, uint32_t to, size_t floats,
                   size_t extras, struct arena *arena);

/* Copy the model and start to send it. Returns false, without sending, while the previous copy is
 * still being sent: training never waits for the network. */
bool publisher_start(struct publisher *p, const struct progress *progress, uint32_t use,
                     const struct global_model *model);

/* The same for a joiner; `joint` NULL: no vectors. */
bool publisher_admit(struct publisher *p, uint32_t to, const struct progress *progress,
                     const struct join_state *admission, const struct global_model *model);

/* The same for the states of these streams alone, to the reader. */
bool publisher_start_streams(struct publisher *p, const struct progress *progress,
                             const struct carried_state *carried,
                             const struct carried_selection *only);

/* Is that still on its way? */
bool publisher_admits(const struct publisher *p);

/* Wait until the present copy is sent. OK, ERR_TIMEOUT, ERR_PEER, ERR_CANCELLED */
int publisher_finish(struct publisher *p, int64_t deadline);
void publisher_release(struct publisher *p);

/* The header of a global model's vectors, of which a strategy's own are `extras`; and a copy of
 * them as they travel. */
struct model_header model_header_of(const struct global_model *model, size_t extras);
void model_copy(float *copy, const struct global_model *model, size_t extras);

/* Send a header alone, behind which no vectors follow. Errors as of model_send */
int model_send_header(struct world *world, uint32_t to, const struct model_header *header);

/* Send the model that the header describes, its vectors one after another; waits for credit.
 * ERR_PEER, ERR_NOMEM, ERR_CANCELLED */
int model_send(struct world *world, uint32_t to, const struct model_header *header,
               const float *vectors);

/* The same where `read` gives the floats, piece by piece and in order; also its errors. */
int model_send_from(struct world *world, uint32_t to, const struct model_header *header,
                    int (*read)(void *user, size_t from, size_t n, float *into), void *user);

/* All that receive a header: its scores bring the room for their text, else 0.
 *
 * Wait for a model of `from` (or of WORLD_ANY) and store its vectors in `into`, which has room for
 * `room` floats. ERR_DRIVER: the group (may be NULL) has ended; ERR_TIMEOUT, ERR_CANCELLED;
 * ERR_PEER: it broke off, and another may follow; ERR_PROTOCOL: it is longer than the room */
int model_receive(struct world *world, const struct group *group, uint32_t from, float *into,
                  size_t room, struct model_header *header, int64_t deadline);

/* The same in two steps, for callers that check the sender in between: the header of the next model
 * of *from (or of WORLD_ANY), with its node in *from; then the vectors. ERR_TIMEOUT: a piece took
 * more than `pause` ns (0: no limit). */
int model_receive_header(struct world *world, const struct group *group,
                         struct model_header *header, uint32_t *from, int64_t deadline);
int model_receive_vectors(struct world *world, const struct group *group, uint32_t from,
                          float *into, size_t room, const struct model_header *header,
                          int64_t pause);

/* The header of the next states of streams, of this commit point, and their node. The vectors
 * follow. ERR_TIMEOUT, ERR_PROTOCOL, ERR_CANCELLED */
int model_receive_streams_header(struct world *world, uint64_t exchanges,
                                 struct model_header *header, uint32_t *from, int64_t deadline);

/* Drop the vectors behind that header instead of receiving them. */
void model_drop_chunks(struct world *world, uint32_t from, size_t room,
                       const struct model_header *header);

#endif
