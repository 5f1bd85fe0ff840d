/* The slices of a model (SparkDML §2.2, tensor/model_slice.h) and its replicas. Each member of the
 * view has a seat (group/view.h): one slice of one replica. Its **mates** have the other slices of
 * its replica: in a step they exchange blobs layer by layer (nn/net.h); forward they gather the
 * outputs that each has computed, backward they add up the gradients. Its **peers** have the same
 * slice in other replicas: they add up what the replicas have learnt.
 *
 * Gathers and sums run in one view and have no commit rule. When the view changes, all members
 * bring their lanes into line (slice_group_enter) and repeat what has not been committed. */
#ifndef PL_STRATEGY_SLICE_GROUP_H
#define PL_STRATEGY_SLICE_GROUP_H

#include "strategy/async_task.h"

/* Exchanges with the commit rule, of all members: of rounds, and of models that were due. */
enum { SLICE_ROUNDS, SLICE_MODELS, SLICE_EXCHANGES };

/* Of the world's signals: a sum begins in the background; one has ended; that of a bucket begins.
 */
enum {
    SIGNAL_SLICE_MEETING = STRATEGY_SIGNAL_FIRST,
    SIGNAL_SLICE_MET,
    SIGNAL_SLICE_BUCKET,                      /* … + its number */
    SIGNAL_SLICE_TURN = STRATEGY_SIGNAL_TURN, /* a turn of a hand-over begins */
};

/* A collective in a view. */
struct slice_run {
    struct coll_plan *plan;
    float *x;
    struct coll c;
    struct coll_waits waits;
    int status;
};

/* A joiner receives this with its vectors (slice_state.c). */
struct slice_state {
    struct progress progress;
    uint64_t models; /* commit points at which a model was due, */
    uint32_t due;    /* and the uses of the last one; 0: it has been shown */
    bool ended;      /* the loop has ended behind this progress, */
    bool shown;      /* and the model has been evaluated: `scores` */
    struct model_scores scores;
    uint64_t updates, steps;
    bool lasts; /* a round follows at whose end alone the donor's vectors change */
};

struct slice_group {
    struct member *m;
    struct model_slice slice; /* of this member */
    struct exchange *lane[SLICE_EXCHANGES];
    const struct view *view; /* in which this member is in line; NULL: none yet */
    size_t replica;          /* its number there */
    uint64_t entered;        /* rounds that were completed when it began */
    bool whole;              /* all its mates are there */
    bool handed;             /* joiners of this view have their state, as far as they get it here */
    struct members complete; /* those that have all of it */
    uint64_t received;       /* floats of each vector, by this member as a joiner */
    struct async_task turns; /* of the hand-over */
    struct slice_run turn;   /* the last one, which was to end and did end at these times: */
    int64_t until, turn_ended;
    struct slice_state given; /* its header */
    struct vec *own;          /* which is also the rule's vector, if that has one; else NULL */
    struct ranks *mates;      /* by slice */
    struct ranks *peers;      /* by replica; this member among them */
    struct members donors;    /* those peers that have the state */
    struct coll_plan *plan;   /* one a point of the net, made at its first use */
    size_t plans;
    struct coll_plan votes; /* of the replica; and of the vector of `common` floats */
    struct coll_plan common_plan;
    struct net_parallel parallel; /* of the net: its data-parallel layers (nn/net.h) */
    struct coll_plan states;      /* of s, */
    struct coll_plan carried;     /* and of the states of streams, */
    struct vec streams;           /* as of the model shown last; n = 0: they are not kept */
    size_t common;                /* floats of the other segments that each slice has whole */
    struct coll_plan sums[2];     /* of the peers: of data-parallel layers, and of the rest; */
    size_t sum_ranks, sum_rank;   /* that are so many */
    size_t *cut;  /* where the parts of the slices begin in `parts`, and the last ends */
    float *parts; /* room for the vector of which each slice has a part */
    size_t room;
    struct slice_run background; /* by the task, from NET_GATHER_BEGINS or NET_SUM_BEGINS on */
    struct async_task task;
    uint64_t meetings, summed; /* number the group's messages in this view */
    uint64_t bytes;            /* sent and received since slice_group_take_bytes */
};

/* Memory from the member's arena, and two lanes. ERR_NOMEM. slice_group_close releases the rest;
 * zeroed: nothing to do. */
int slice_group_open(struct slice_group *g, struct member *m);
void slice_group_close(struct slice_group *g);

/* Bring this member into line with the group's view, as far as it has a seat there; waits for one
 * otherwise. Behind it an exchange that another member had completed is completed here, too.
 * ERR_VIEW: the seat is another slice's; ERR_DRIVER, ERR_CANCELLED, ERR_PROTOCOL, ERR_NOMEM */
int slice_group_enter(struct slice_group *g);

/* Does the view that this member is in line with still hold? */
bool slice_group_is_current(const struct slice_group *g);

/* Does the group have several replicas at times? And in this view? */
bool slice_group_has_replicas(const struct slice_group *g);

/* ---- collectives (slice_collectives.c) ---- */

/* Exchange a blob with the mates: learner->meet. Returns when point->values has the result, whose
 * bits are the same on all slices. Where a meeting begins it returns at once, and up to its end the
 * values are the group's, which a caller that gives up in between closes. ERR_VIEW: the view has
 * changed; ERR_PROTOCOL, ERR_CANCELLED, ERR_NOMEM; also those below */
int slice_group_meet(void *slice_group, const struct net_point *point);

/* The end of a view has ended a pass: wait for a meeting of it that is under way. ERR_CANCELLED */
int slice_group_abandon(struct slice_group *g);

/* x (n floats, the same in all calls) ← Σ over the mates, or over the peers. */
int slice_group_vote(struct slice_group *g, float *x, size_t n);
int slice_group_sum(struct slice_group *g, float *x, size_t n);

/* v (as long as g->streams) ← Σ over all members. */
int slice_group_add_up(struct slice_group *g, struct vec *v);

/* Plan a sum of n floats over these ranks, and carry one out that is over the peers. */
int slice_group_plan_sum(const struct slice_group *g, struct coll_plan *plan,
                         const struct ranks *ranks, size_t n);
int slice_group_add_peers(struct slice_group *g, struct coll_plan *plan, float *x);

/* The segments of v (like x) that each slice has whole are the first slice's on all. The gradients
 * of all mates are equal, unless their machines compute otherwise in the last bits; those of
 * data-parallel layers are sums of the mates, and equal. */
int slice_group_align(struct slice_group *g, struct vec *v);

/* s becomes that of all: each channel that slices share out its slice's, of data-parallel layers
 * the mean, and others the first slice's. */
int slice_group_align_states(struct slice_group *g);

/* ---- the model ---- */

/* The slices of this replica evaluate the model together if that is among its uses, and with
 * `offers` one of them, which `speaks`, offers it to the driver: m->evaluate, m->offer. */
int slice_group_show(struct slice_group *g, uint32_t uses, bool ended, bool offers, bool speaks);

/* ---- the state of a slice (slice_state.c) ---- */

/* Memory for g->streams, in which no stream has a state. ERR_NOMEM */
int slice_group_open_streams(struct slice_group *g);

/* g->streams ← the table of the states that all members carry, of which `only` are this replica's.
 */
int slice_group_collect_streams(struct slice_group *g, const struct carried_selection *only);

/* Is this member one that lacks the state of its slice in this view? */
bool slice_group_is_fresh(const struct slice_group *g);

/* Joiners of the view receive *state and the learner's vectors from their peers; others send them.
 * Before each round, and behind the last one. A turn ends with the portion that is under way after
 * 0.3 s, or half of the time of a round; if state->ended, with the last portion. If the state
 * `lasts`, the turn continues in the background: no donor changes its vectors, and no joiner uses
 * them, before slice_group_end_turn, which waits for its end. Returns at once where no joiner lacks
 * anything. */
int slice_group_hand_over(struct slice_group *g, struct slice_state *state);
int slice_group_end_turn(struct slice_group *g);
bool slice_group_in_turn(const struct slice_group *g);

/* The task of such turns. ERR_NOMEM */
int slice_group_open_turns(struct slice_group *g);

/* Is this member a joiner that has not received all of its state in this view? It can apply rounds
 * to what it has. */
bool slice_group_lacks_state(const struct slice_group *g);

/* A slice of the last replica is lost: wait for the end of the run. ERR_DRIVER, ERR_CANCELLED;
 * ERR_VIEW: it did not end in time */
int slice_group_await_end(struct slice_group *g);

uint64_t slice_group_take_bytes(struct slice_group *g);

/* A collective of this member in its view. */
struct coll slice_group_coll(struct slice_group *g, const struct ranks *ranks, uint32_t lane,
                             uint64_t n, struct coll_waits *waits);

/* Messages of slices have lanes of their own, in which there are no exchanges. */
enum {
    SLICE_LANE = ROSTER_LANES_MAX - 1,
    PEER_LANE = ROSTER_LANES_MAX - 2,
    PARTS_LANE = ROSTER_LANES_MAX - 3,  /* with the driver */
    BUCKET_LANE = ROSTER_LANES_MAX - 4, /* of mates; those of peers are in theirs */
};

/* The loop of a worker that has a slice, of a strategy of sliced_rule.h: m->own is its own. */
int sliced_worker(struct member *m);
void sliced_close(struct member *m);

#endif
