/* Exchanges: numbered all-reduces of a lane, with the commit rule (D5).
 *
 * A member keeps its input and the result of exchange n until n+1 of that lane completes. When the
 * view changes, all who take part report the last exchange they completed; if anyone completed n,
 * all adopt that result, else all redo n from their kept inputs. So no two members of a view ever
 * apply different results for one (lane, n), and a caller sees only committed results.
 *
 * A contribution that is not finite, or that its owner marks so, counts as nothing: weight 0, its
 * sender named to everyone. */
#ifndef PL_COLL_EXCHANGE_H
#define PL_COLL_EXCHANGE_H

#include "coll/auto.h"
#include "coll/coll_run.h"
#include "coll/stages.h"
#include "tensor/vec.h"

/* The metadata that travels with the vector and is reduced with it. All fields are eight bytes
 * wide: it goes over the wire as it stands. */
struct exchange_meta {
    double weight;                   /* Σ: of the mean */
    uint64_t samples;                /* Σ: records that went into the contributions */
    double loss;                     /* Σ of losses over those records */
    uint64_t stop_votes;             /* Σ: who want the run to end here */
    struct members contributors;     /* ∪: whose contribution counted */
    struct members participants;     /* ∪: who took part, counted or not */
    struct members non_contributing; /* ∪: who rightly had nothing to give: comes in, or goes */
    struct members leaving; /* ∪: who has no part in what follows: leaves, or is not in yet */
    uint64_t hash_min, hash_max; /* of replicas that must agree: min, max; UINT64_MAX and 0 when
                                    not compared */
    double step_s;               /* max: seconds of a member's step, where it says so; else 0 */
    double exchange_s;           /* min: of its exchange before this one, likewise */
    struct auto_meta automatic;  /* merged; where links are measured */
    uint64_t algorithm;          /* rank 0's choice, for all */
    double rate;                 /* Σ: steps that a member takes in a second, where it says so */
};

/* The nodes that process the reduced vector before it is broadcast. */
enum exchange_split {
    EXCHANGE_WHOLE,     /* nobody: an all-reduce */
    EXCHANGE_AT_ROOT,   /* the driver, which takes part as rank 0 and brings nothing itself */
    EXCHANGE_AT_OWNERS, /* each rank, for its own part */
};

/* How a lane's vectors are exchanged. */
struct exchange_config {
    enum coll_algorithm algorithm;
    bool pinned;  /* COLL_AUTO goes by its rule, whatever links can do */
    size_t chunk; /* floats of a piece */
    enum codec codec;
    uint32_t stripes; /* connections to each peer; COLL_AUTO, where it measures, uses them or one */
    /* Instead of the weighted mean: the plain reduction of the inputs whose weight is not 0, finite
     * or not. Others put `identity` in, which changes nothing under the reduction. */
    bool plain;
    struct reduction reduction;
    float identity;
    /* A split exchange has schedules of its own, whatever the algorithm. `x` is Σ w·input over the
     * range, which may be empty, and Σ w is exchange metadata->weight; what prepare leaves there is
     * the result. It may come again for the same exchange, with another range and other sums: what
     * the last one did counts, and only when the exchange is completed. OK, or what ends the
     * lane. */
    enum exchange_split split;
    int (*prepare)(void *user, struct range range, float *x, const struct exchange_meta *meta);
    void *user;
    struct stages *stages; /* lanes of this node that take turns; NULL: it continues as it likes */
    /* State that the driver and the workers hold for this lane besides its results, as of the last
     * exchange that each completed. The member that sends a recovered driver the result sends this
     * state, too. A joiner is not: what its strategy does not bring it otherwise it starts over.
     * Borrowed; of one length on all. n 0: nothing. */
    struct vec kept;
};

/* The cost of the exchange to this member. */
struct exchange_cost {
    double seconds;  /* from entry to exit */
    double waited_s; /* beyond its own transfers */
    uint32_t waited_for;
    uint64_t bytes; /* sent and received */
};

/* The activity of a member in a lane, for observers. */
enum exchange_stage {
    EXCHANGE_IDLE,
    EXCHANGE_COLLECTING, /* it has given its input, and waits until all have */
    EXCHANGE_REDUCING,   /* the vector is on its way */
    EXCHANGE_REPORTING,  /* a new view: it has said how far it is, and waits to hear what counts */
    EXCHANGE_ADOPTING,   /* and hands a result on, or fetches it */
};

struct exchange {
    struct group *group;
    uint32_t lane;
    enum exchange_stage stage;
    bool driver_takes_part; /* as rank 0; else the first worker of the view is */
    bool in_background;     /* run by a background task the one that computes */
    struct exchange_config config;
    size_t n_floats;
    uint64_t completed;        /* number of the last exchange completed here */
    uint32_t synced;           /* the view in which the lane was last brought into line */
    bool joined;               /* come in behind `completed`, whose result is not here: has nothing
                                  to give to its first exchange */
    bool needs_sync;           /* come in, and does not know how far the lane is */
    struct vec input;          /* kept, unweighted */
    struct vec result[2];      /* of exchange n in [n & 1] */
    struct exchange_meta mine; /* kept with the input */
    struct exchange_meta meta[2]; /* with the results */
    struct exchange_cost cost;    /* of the last exchange */
    struct coll_plan plan; /* for `planned_in` and `planned`, kept from exchange to exchange */
    struct coll_plan result_plan; /* split: `plan` reduces, this one brings the results */
    uint32_t planned_in;          /* 0: nothing is planned */
    enum coll_algorithm planned;
    struct coll_auto automatic;
    double took; /* s, the last vector with the present choice; 0: none */
    /* The error that a lossy codec has not delivered yet: after the last exchange, and in the one
     * under way. Not used with f32. */
    struct vec residual[2];
};

/* Memory for vectors of n floats from the arena. `completed` starts the count (0, or a
 * checkpoint's). Released by exchange_release. ERR_NOMEM */
int exchange_init(struct exchange *e, struct group *group, uint32_t lane, bool driver_takes_part,
                  size_t n, const struct exchange_config *config, uint64_t completed,
                  struct arena *arena);
void exchange_release(struct exchange *e); /* zeroed: nothing to do */

/* This member comes to a lane under way, of which so many exchanges are completed. Its first has
 * weight 0 whatever it gives. */
void exchange_join(struct exchange *e, uint64_t completed);

/* The same for one that is not told how far the lane is: exchange_sync finds out, and brings the
 * result of the last exchange, before the first exchange_run. Until then e->blank. */
void exchange_join_unsynced(struct exchange *e);

/* The weighted mean over all who take part of what they put into e->input (unweighted; the root
 * that only collects gives weight 0), with `mine` saying what it stands for. Returns when exchange
 * e->completed + 1 is committed, in however many views that takes: the result is then
 * exchange_result(e). When all weights are 0 the result is 0 and exchange metadata->weight says so.
 * The result of a split exchange is what was prepared.
 *
 * ERR_TIMEOUT (the group stood still past its deadline), ERR_PEER (no worker is left),
 * ERR_CANCELLED, ERR_DRIVER, ERR_NOMEM; inputs untouched. */
int exchange_run(struct exchange *e, const struct exchange_meta *mine);

/* After the last exchange of a lane there is no next one in which a new view would be noticed, but
 * members of it may lack the last result. A member that has the last result calls this whenever the
 * group has changed (SIGNAL_GROUP) until the run is over: it reports, and sends the result to
 * members that lack it. Same errors. */
int exchange_sync(struct exchange *e);

/* Of the last exchange completed here; valid until the next one completes. */
const struct vec *exchange_result(const struct exchange *e);
const struct exchange_meta *exchange_result_meta(const struct exchange *e);

/* Does the run end for all behind that exchange? Somebody has asked for it, or all who took part
 * leave: nobody would be there to continue. */
bool exchange_meta_ends_run(const struct exchange_meta *meta);

#endif
