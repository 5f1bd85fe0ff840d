/* Exchanges: numbered all-reduces of a lane, with the commit rule (D5).
 *
 * A member keeps its input and the result of exchange n until exchange n + 1 of the lane completes.
 * When the view changes, all participants report the last exchange that they completed. If any of
 * them completed n, all adopt that result; otherwise all redo n from their kept inputs. So no two
 * members of a view ever apply different results for one (lane, n), and a caller sees committed
 * results only.
 *
 * A contribution that is not finite gets weight 0, and the metadata names its sender to all. With
 * `reject`, rank 0 compares the claims of all members (outlier.h) before the vector is reduced, and
 * refuses outliers, which then are not among the contributors. */
#ifndef PL_COLL_EXCHANGE_H
#define PL_COLL_EXCHANGE_H

#include "coll/auto.h"
#include "coll/coll_run.h"
#include "coll/outlier.h"
#include "coll/stages.h"
#include "tensor/vec.h"

/* The metadata that travels with the vector and is reduced with it. There is no padding between its
 * fields: it goes over the wire as it stands. */
struct exchange_meta {
    double weight;                   /* Σ: of the mean */
    uint64_t samples;                /* Σ: records behind the contributions */
    double loss;                     /* Σ of losses over those records */
    uint32_t stop_votes;             /* Σ: members that want the run to end here */
    uint16_t flush_votes;            /* Σ: members that want nothing to be owed after it: above 0
                                        the vector and all residuals travel as they are; with a
                                        split, those of the next exchange */
    uint16_t checkpoint_votes;       /* Σ: members that are asked for a checkpoint, for which each
                                        sends what only it has */
    struct members contributors;     /* ∪: members whose contribution counted */
    struct members participants;     /* ∪: members that took part */
    struct members non_contributing; /* ∪: members with nothing to contribute: joiners, leavers */
    struct members leaving;          /* ∪: members that have no part in what follows */
    uint64_t hash_min, hash_max; /* min, max: of replicas that must agree; UINT64_MAX and 0 where
                                    they are not compared */
    double step_s;               /* max: seconds of a member's step, or 0 where it is not given */
    double exchange_s;           /* min: seconds of its previous exchange, likewise */
    struct auto_meta automatic;  /* merged, where links are measured */
    uint64_t algorithm;          /* rank 0's choice for all */
    double rate;                 /* Σ: steps of a member per second, where it is given */
};

/* The nodes that process the reduced vector before it is broadcast. */
enum exchange_split {
    EXCHANGE_WHOLE,     /* none: an all-reduce */
    EXCHANGE_AT_ROOT,   /* the driver, which takes part as rank 0 with weight 0 */
    EXCHANGE_AT_OWNERS, /* each rank, for its own part */
};

/* How a lane's vectors are exchanged. */
struct exchange_config {
    enum coll_algorithm algorithm;
    bool pinned;  /* COLL_AUTO chooses by its rule alone and measures no links */
    bool reject;  /* outliers; not with a split, nor with `plain` */
    size_t chunk; /* floats of a piece */
    enum codec codec;
    /* With a lossy codec: floats that travel as they are, such as the state s of layers, whose
     * small variances rounding would make 0. */
    struct range exact;
    /* Inputs are states that their members keep, and their differences to exchange.base. The next
     * difference has what the codec lost of this one: there is no error feedback, which would send
     * it twice. Else inputs are consumed, and what was lost is added to the next. */
    bool states;
    uint32_t stripes; /* connections to each peer; COLL_AUTO, where it measures, uses them or one */
    double probe_s; /* above 0: the links are measured before each vector, whatever its length, into
                       e->automatic.probe, with this limit; not with a split, nor with COLL_AUTO */
    /* Instead of the weighted mean: the plain reduction of all inputs of weight above 0, finite or
     * not. A member of weight 0 contributes `identity`, which does not change the reduction. */
    bool plain;
    struct reduction reduction;
    float identity;
    /* A split exchange has schedules of its own, whatever the algorithm. `prepare` receives
     * x = Σ w·input over the range, which may be empty, with Σ w in meta->weight, and leaves the
     * result in x. After a view change it may be called again for the same exchange, with another
     * range and other sums; the last call counts, once the exchange has completed. An error ends
     * the lane. */
    enum exchange_split split;
    int (*prepare)(void *user, struct range range, float *x, const struct exchange_meta *meta);
    void *user;
    /* exchange_run makes one attempt, in the view with which the lane is in line, and returns
     * ERR_VIEW if that view has ended, or ends: the caller calls exchange_sync, after which the
     * exchange may be completed, or else makes its input again. The metadata's `leaving` are the
     * caller's. */
    bool once;
    /* (optional) Called when an exchange that no member has completed is attempted in a new view:
     * the lane and its caller's state are as the last exchange left them. */
    void (*on_view)(void *on_view_user);
    void *on_view_user;
    struct stages *stages; /* shared by lanes of this node that take turns; NULL: no turns */
    /* State that the driver and the workers hold for this lane besides its results, as of the last
     * exchange that each completed. A worker that sends the result to a recovered driver, or to a
     * member that exchange_sync brings into line, sends this state, too. Other joiners do not
     * receive it: their strategy brings it or resets it. Borrowed, of one length on these nodes. n
     * 0: there is none. */
    struct vec kept;
};

/* The cost of the exchange to this member. */
struct exchange_cost {
    double seconds;  /* from entry to exit */
    double waited_s; /* beyond its own transfers */
    uint32_t waited_for;
    uint64_t bytes;      /* sent and received */
    double arrival_mbit; /* of the message that took longest to arrive; 0: none took any time */
    uint32_t arrival_from;
};

/* The state of a member in a lane. exchange.c has the table of transitions. */
enum exchange_stage {
    EXCHANGE_IDLE,
    EXCHANGE_COLLECTING, /* the metadata is being reduced: it waits until all take part */
    EXCHANGE_REDUCING,   /* the vector is being reduced */
    EXCHANGE_REPORTING,  /* a new view: it has reported, and waits for the driver's decision */
    EXCHANGE_ADOPTING,   /* it sends or receives the result that counts */
    EXCHANGE_STAGES,
};

struct exchange;
/* Asserts that the transition is one of the table. */
void exchange_enter(struct exchange *e, enum exchange_stage stage);

struct exchange {
    struct group *group;
    uint32_t lane;
    enum exchange_stage stage;
    bool driver_takes_part; /* as rank 0; otherwise the first worker of the view is rank 0 */
    bool in_background;     /* a background task runs it while the main task computes */
    struct exchange_config config;
    size_t n_floats;
    uint64_t completed; /* number of the last exchange completed here */
    uint32_t synced;    /* the view in which the lane was last brought into line */
    uint32_t made_in;   /* the view whose participants have the result of `completed`: `synced`, or
                           a later one in which a leaf received it */
    /* LANE_HELD: it has the result of `completed`. LANE_WAS_LEAF: likewise, but others may have
     * another result of it. LANE_JOINED: a joiner behind `completed`, without its result: it
     * contributes nothing to its first exchange. LANE_UNKNOWN: nor does it know how far the lane
     * is. */
    enum lane_report standing;
    struct vec input; /* kept, unweighted */
    /* Set before an exchange, and unchanged until it has completed: a vector near the inputs that
     * all members have, bit for bit; n 0: there is none. A lossy codec sends differences to it over
     * its length, but for the exact floats: those of the inputs, and in a split exchange those of
     * the result. So the codec's error is a part of what has changed, not of the model. */
    struct vec base;
    struct vec result[2];       /* of exchange n in [n & 1] */
    struct exchange_meta mine;  /* kept with the input */
    struct outlier_claim claim; /* likewise, with config.reject */
    struct outlier_history history;
    uint64_t averaged;            /* exchanges completed one after another by taking part */
    struct exchange_meta meta[2]; /* with the results */
    struct exchange_cost cost;    /* of the last exchange */
    struct coll_plan plan;        /* of view `planned_in` and algorithm `planned`; reused */
    struct coll_plan result_plan; /* of a split exchange: `plan` reduces, this one broadcasts */
    uint32_t planned_in;          /* 0: there is no plan */
    enum coll_algorithm planned;
    enum codec planned_codec;
    struct coll_auto automatic;
    double took; /* s, of the last vector with the present choice; 0: none */
    /* Values that a lossy codec has lost and this member has not sent yet: after the last exchange,
     * and in the one under way. Not used with f32, nor with states. */
    struct vec residual[2];
    uint64_t attempted; /* the last exchange that this member began; 0: none */
    /* Of a split exchange: where residuals are of results; elsewhere they are of sums, which were
     * divided by this weight at last. */
    struct range owned;
    double owned_weight;
    double flush_s;     /* seconds that the last exchange by flush votes took; 0: there was none */
    int64_t flushed_at; /* and when it ended, on the world's clock */
};

/* Memory for vectors of n floats from the arena. `completed` starts the count (0, or a
 * checkpoint's). Released by exchange_release. ERR_NOMEM */
int exchange_init(struct exchange *e, struct group *group, uint32_t lane, bool driver_takes_part,
                  size_t n, const struct exchange_config *config, uint64_t completed,
                  struct arena *arena);
void exchange_release(struct exchange *e); /* zeroed: nothing to do */

/* This member joins a lane of which `completed` exchanges are done. Its first exchange has weight
 * 0, whatever it contributes. */
void exchange_join(struct exchange *e, uint64_t completed);

/* The same for a joiner that does not know how far the lane is. exchange_sync, called before the
 * first exchange_run, finds out and fetches the last result. Until then e->standing is
 * LANE_UNKNOWN. */
void exchange_join_unsynced(struct exchange *e);

/* The weighted mean, over all participants, of their e->input (unweighted; a root that only
 * collects gives weight 0). `mine` describes the input. Returns when exchange e->completed + 1 is
 * committed, in however many views that takes; the result is then exchange_result(e). When all
 * weights are 0, the result is 0, or the base, and the weight in its metadata is 0. The result of a
 * split exchange is what `prepare` left.
 *
 * ERR_VIEW (this member is a leaf, or was one: exchange_sync first; or config.once), ERR_TIMEOUT
 * (the group stood still past its deadline), ERR_PEER (no worker is left), ERR_CANCELLED,
 * ERR_DRIVER, ERR_NOMEM; inputs untouched. */
int exchange_run(struct exchange *e, const struct exchange_meta *mine);

/* May this member vote for a flush? With residuals, if the last one took no more than a twentieth
 * of the time since then: on a slow link a whole vector takes as long as many lossy exchanges. Not
 * for a split exchange. */
bool exchange_may_flush(const struct exchange *e);

/* Of a split exchange: will the next one be a flush? Its vectors leave before its own votes are
 * known, so those of the last one count. */
bool exchange_next_flushes(const struct exchange *e);

/* Was the last exchange completed here a flush? */
bool exchange_has_flushed(const struct exchange *e);

/* Forget the residuals, since the next inputs are of another kind than those before,
 * on all members alike. No exchange is under way. */
void exchange_forget_lost(struct exchange *e);

/* Bring the lane into line with the current view without an exchange. After the last exchange of a
 * lane no other one would notice a new view, but members may lack the last result. So each member
 * calls this whenever the group has changed (SIGNAL_GROUP) until the run is over: it reports, and
 * sends or adopts the result. A leaf does nothing. The same errors. */
int exchange_sync(struct exchange *e);

/* The same in that view alone: ERR_VIEW when it has ended. For members that bring several lanes
 * into line, all of them in the same order in each view. */
int exchange_sync_in(struct exchange *e, const struct view *view);

/* A leaf has received the result of exchange n from a participant, instead of completing it: the
 * lane continues behind n. `x`, of the lane's length, becomes the memory of another one. `view`: in
 * which the participants have it. */
void exchange_take_result(struct exchange *e, uint64_t n, struct vec *x,
                          const struct exchange_meta *meta, uint32_t view);

/* Of the last exchange completed here; valid until the next one completes. */
const struct vec *exchange_result(const struct exchange *e);
const struct exchange_meta *exchange_result_meta(const struct exchange *e);

/* Did this member contribute to the last exchange, and was its contribution not refused? */
bool exchange_counted(const struct exchange *e);

/* Does the run end behind that exchange for all members? It does if one of them voted to stop, or
 * if all of them leave. */
bool exchange_meta_ends_run(const struct exchange_meta *meta);

/* Did the exchange whose result this node has end the run? A recovered driver asks before it waits
 * for another one. */
bool exchange_was_last(const struct exchange *e);

#endif
