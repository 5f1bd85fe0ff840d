/* Workers and servers of the model that plan/server_round.c plays: what they have, and the servers'
 * side of it. Private to plan. */
#ifndef PL_PLAN_SERVER_MODEL_H
#define PL_PLAN_SERVER_MODEL_H

#include "coll/link_turns.h"
#include "plan/mesh.h"
#include "plan/server_script.h"

enum { SERVER_NOTICE_BYTES = 72 };

enum message_kind {
    PUSH_HEADER,
    PUSH_GRANT,
    PUSH_PIECE,
    COPY_HEADER,
    COPY_GRANT,
    COPY_PIECE,
    HAVE,
    APPLY,
    SHOW,
    MAY_GO, /* `number`: the order */
    FETCH,
};

/* A transfer between a worker and a shard. */
struct stream {
    double bytes, each; /* of all; of a piece but the last */
    uint32_t pieces, sent, arrived, granted;
};

enum part_use { USE_NONE, USE_ARRIVES, USE_WAITS, USE_COPY };

/* A worker as a shard sees it. */
struct part {
    enum part_use use;
    bool next;      /* the header of a push waits */
    bool requested; /* and so does a request; */
    uint64_t since; /* its place in their order */
    uint64_t done;  /* pushes that are applied */
    struct stream push, copy;
    struct link_peer in, out;
};

struct shard_model {
    size_t x, s;      /* floats */
    double leaves;    /* share of a step after which its push may */
    uint64_t version; /* orders that are carried out */
    struct link_turns in, out;
    uint64_t requests; /* headers and requests so far */
    bool changed;      /* since it was served last */
    double turn;       /* the time at which the next turn comes */
};

struct serving_worker {
    size_t action;
    bool acts;           /* it is in that action, which needs time */
    double began, until; /* COMPUTE */
    size_t open;         /* shards whose part of the push has not left */
    bool begun;          /* that push */
    bool undecided;      /* the last one */
    uint64_t pushes, copies, steps, rounds;
    uint64_t uncontained; /* pushes since the last whole state */
    bool whole;           /* the copy that it requests */
    bool has_state;       /* one of this round was */
    uint64_t wanted;      /* the oldest order that it may be of */
    size_t held;          /* parts of it that have arrived */
    size_t have;          /* shards that have its push */
    struct pace_count pace;
    double sent, received; /* bytes */
};

struct world_model {
    const struct round_config *config;
    const struct round_cluster *cluster;
    size_t workers, shards;
    struct script script;
    struct serving_worker *worker;
    struct shard_model *shard;
    struct part *part; /* of each shard, of each worker */
    struct mesh *mesh;
    struct members ready; /* workers whose pushes wait for the clock */
    struct members held;  /* in rounds: those that wait for others */
    double now;
};

static inline struct part *part_of(const struct world_model *w, size_t shard, size_t worker)
{
    return &w->part[shard * w->workers + worker];
}

/* Begin a transfer; its header, like any message, is sent apart. */
void server_model_open(const struct world_model *world, struct stream *stream, double bytes,
                       size_t floats);

void server_model_send(struct world_model *world, enum message_kind kind, size_t shard,
                       size_t worker, uint64_t number, double bytes);

/* A message has arrived, at either side. */
void server_model_receive(struct world_model *world, const struct mesh_message *message);

/* All pushes that have arrived by now are decided together. In rounds they wait for each other. */
void server_model_decide(struct world_model *world);

/* All shards accept pushes and send copies, whose turn has come; each then has the time of its next
 * turn. */
void server_model_serve(struct world_model *world);

#endif
