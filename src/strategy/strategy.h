/* Strategies: one algorithm of a paper in a file, worker and driver side together. A strategy moves
 * flat vectors between learners. It never sees a layer, and never evaluates, writes models or logs.
 */
#ifndef PL_STRATEGY_STRATEGY_H
#define PL_STRATEGY_STRATEGY_H

#include "coll/exchange.h"
#include "data/lease_cursor.h"
#include "job/job.h"
#include "learner/learner.h"
#include "strategy/consistency.h"

/* The progress of the run, on which all members agree at a commit point. */
struct progress {
    uint64_t sample_offset; /* in the endless stream of samples: earlier ones are committed */
    uint64_t steps;         /* of each worker */
    uint64_t exchanges;     /* of all lanes */
    uint64_t samples_used;  /* samples before sample_offset that counted; train keeps the count.
                         Asynchronous: samples that this worker has used since it began */
    struct members sharers; /* members that share the samples of the round under way */
};

void progress_encode(const struct progress *progress, struct buf *out);
void progress_decode(struct byte_reader *in, struct progress *out);

/* The result of an evaluation by the slices of a replica: sums over the records of the validation
 * and of the test set, and the text that the model has drawn. */
enum { SCORES_SETS = 2 };
struct drawn_text {
    char *at;    /* `room` bytes, as many on all nodes of a run; NULL: none */
    size_t room; /* 0: no texts are drawn */
    size_t len;  /* 0: there is none */
};
struct model_scores {
    bool here;          /* it was evaluated, */
    uint64_t exchanges; /* at this commit point */
    struct net_result sum[SCORES_SETS];
    struct drawn_text text;
};

/* The reader's text has the room of the writer's; else the reader fails. */
void model_scores_encode(const struct model_scores *scores, struct buf *out);
void model_scores_decode(struct byte_reader *in, struct model_scores *out);

enum { STRATEGY_EXTRAS_MAX = 2 };

/* The exchanges of a node, each in a lane of its own; lanes are numbered from 0. */
struct lanes {
    struct exchange *at[ROSTER_LANES_MAX];
    size_t count;
    const struct join_state *joined; /* of a joiner of a run under way; else NULL */
    /* Of a recovered driver: it has no result of these lanes and does not know how many exchanges
     * are completed, until exchange_sync. */
    bool needs_sync;
    /* Of a driver with a part: for the lanes that its own task runs (exchange_config.on_view). */
    void (*on_view)(void *user);
    void *user;
};

#define JOIN_STATE_NOT_HERE SIZE_MAX

/* The state that a donor sends a joiner besides the progress and the model: the completed exchanges
 * of each lane, and the words of ops->export_join_state. */
struct join_state {
    uint32_t lanes, words;
    uint64_t completed[ROSTER_LANES_MAX];
    uint64_t word[JOIN_STATE_WORDS];
};

/* Open the next lane, for vectors of n floats: exchange_init with memory from the arena; `lanes`
 * owns it until lanes_release. A joiner's lane begins behind its donor's last exchange, whatever
 * `completed` is. ERR_NOMEM; ERR_PROTOCOL: the donor had no such lane */
int lanes_open(struct lanes *lanes, struct group *group, bool driver_takes_part, size_t n,
               const struct exchange_config *config, uint64_t completed, struct arena *arena,
               struct exchange **out);
void lanes_release(struct lanes *lanes);

/* The global model on this node, for evaluation and checkpoints. */
struct global_model {
    const struct vec *x, *s;
    const struct vec *state; /* the optimizer's vectors, if they belong to the model; else states
                                is 0 */
    size_t states;
    uint64_t updates; /* updates behind the state */
    const struct vec
        *extra; /* the strategy's own vectors, named by ops->extra_name; NULL: none (yet) */
    /* The state of its streams, or NULL; `carried_only`: of these streams alone, where others have
     * the rest (NULL: all). */
    const struct carried_state *carried;
    const struct carried_selection *carried_only;
    /* Of slices, in place of both: the table of all streams, which each has; NULL: none is kept. */
    const struct vec *carried_table;
};

/* The world's signals, by which tasks of a node wake each other: 1 is the group's, 2 and 3 the
 * loader's, 30 and 31 the local group's, 32 and 33 the key-value store's. Of a strategy, with one
 * more for slices: */
enum { STRATEGY_SIGNAL_FIRST = 4, STRATEGY_SIGNAL_LAST = 29, STRATEGY_SIGNAL_TURN = 34 };

/* Flushes without an exchange of all members. */
struct strategy_flush {
    bool on;
    int64_t begun, ended, took; /* ns; `took`: of it the time that f32 took on the link */
};

/* Begin one, unless the last one took more than a twentieth of the time since then, as
 * exchange_may_flush. Returns flush->on. */
bool strategy_flush_begin(struct strategy_flush *flush, int64_t now);
void strategy_flush_end(struct strategy_flush *flush, int64_t now, int64_t took);

/* A worker as its strategy sees it. */
struct member {
    struct world *world;
    struct group *group; /* NULL under `single` */
    struct learner *learner;
    const Paceline__Job *job;
    struct arena *arena;              /* for the strategy's vectors */
    struct progress start;            /* where the run began, or resumed */
    struct progress progress;         /* the current progress; asynchronous: of this worker alone */
    bool leased;                      /* it takes its samples by leases, which train grants: */
    struct lease_cursor lease_cursor; /* (data/lease_cursor.h) */
    size_t share;                     /* asynchronous: samples of its step under way */
    struct lanes lanes; /* opened by the strategy. When its loop has ended well, train keeps them
                           in line (exchange_sync) until the run is over, except those of
                           background tasks */
    struct global_model model; /* set by train to the learner's own; the strategy may replace it */
    /* (optional) Set by the strategy: member_model calls it. */
    void (*compute_model)(struct member *m);
    /* (optional) Set by the strategy: after the loop train calls it, instead of exchange_sync,
     * whenever the group has changed. */
    int (*stay_in_line)(struct member *m);
    /* Set by the strategy: on_commit publishes no models, since they are in slices, and no member
     * has a whole one. The strategy calls the hooks `uses_due`, `evaluate` and `offer`. */
    bool publishes_itself;
    /* Set by an asynchronous strategy: this model lacks what lossy wires owe, and a checkpoint
     * waits until it does not, unless it is urgent. */
    bool owes;
    bool keeps_streams;         /* strategy_keeps_streams: set by train */
    struct model_scores scores; /* of `evaluate`, or of a donor; train sets the text's room */
    size_t points; /* where slices meet, in all nets: their numbers are below it; set by train */
    /* ops->extras vectors from a checkpoint or a donor; NULL: none */
    const struct vec *resumed;
    const struct join_state *join_state; /* this worker has joined a run under way; else NULL */
    void *own;                           /* the strategy's */
    /* Train's hook. The strategy calls it at each commit point, between two learner calls, after it
     * has advanced the progress. `e` has just completed; NULL under `single`. ERR_STOP: the run
     * ends here, for every member. */
    int (*on_commit)(struct member *m, const struct exchange *e);
    /* Train's hook: has a checkpoint of this worker's model been requested? */
    bool (*checkpoint_due)(const struct member *m);
    /* Train's hooks where publishes_itself. uses_due: the uses of the model that have become due
     * with the progress. The slices of one replica call the others together, with `c`, whose ranks
     * are these slices in their order and then the driver: `evaluate` sets `scores` to those of the
     * present model if that is a use; `offer` has one of them, which `speaks`, offer the model to
     * the driver, and returns when the driver has taken the parts that it wants. Both end with the
     * view, with ERR_VIEW. */
    uint32_t (*uses_due)(struct member *m);
    int (*evaluate)(struct member *m, uint32_t uses, bool ended);
    int (*offer)(struct member *m, struct coll *c, uint32_t uses, bool speaks);
    /* Train's hook: m->progress is now that of a donor, whose state the strategy has received. */
    void (*on_state)(struct member *m);
    /* Called by strategy_steps between two steps of a round, where all state that a joiner needs is
     * as at the last commit point. In asynchronous strategies it is called while a strategy waits
     * for another node. */
    int (*on_step_boundary)(struct member *m);
    /* The hooks of an asynchronous worker: on_begin before its first step, with all of its state;
     * on_step after each step (strategy_async_step calls it),
     * on_exchange after each of this worker's own exchanges, which it numbers from 1. ERR_STOP: the
     * run ends for this worker now, and for others when they receive `stop`. */
    int (*on_begin)(struct member *m);
    int (*on_step)(struct member *m);
    int (*on_exchange)(struct member *m, uint32_t lane, const struct exchange_cost *cost);
    /* m->lease_cursor is used up: take leases that have arrived. Waits for none. */
    void (*on_leases_exhausted)(struct member *m);
    void *train; /* the hooks' own data */
};

/* The global model as of now, between two steps. */
static inline const struct global_model *member_model(struct member *m)
{
    if (m->compute_model)
        m->compute_model(m);
    return &m->model;
}

/* A machine as `survey` measures it. */
struct machine {
    uint32_t node;
    double step_s;    /* the median of its steps, with their records; 0: not known, or the driver */
    double link_rate; /* bytes/s of its link, to the node that it reached best */
    double latency_s; /* one way: the median of all pairs of nodes, the same for each */
};

/* The driver part of a strategy, where it has one. */
struct driver_part {
    struct world *world;
    struct group *group;
    const struct logger *log;
    const Paceline__Job *job;
    const struct segments *table; /* of x */
    struct arena *arena;
    size_t records;        /* of the training set */
    struct vec both, x, s; /* the global model, x and then s in one vector, and its two parts; train
                              sets the first values */
    struct global_model model;   /* set by train to x and s; the strategy may add to it */
    struct global_model resumed; /* from a checkpoint: the optimizer's state, the strategy's
                                    vectors */
    struct progress progress;
    struct lanes lanes; /* as the member's */
    /* Of a recovered driver: the join state (ops->export_join_state) that the furthest worker
     * reported at its last commit point, which is that of `progress`. NULL: not recovered. */
    const uint64_t *recovered;
    /* In asynchronous strategies: samples before progress.sample_offset that no worker has taken.
     */
    uint64_t untaken;
    /* As the member's hook. In asynchronous strategies it is called with NULL after each change of
     * the global model, and train fills in the progress. */
    int (*on_commit)(struct driver_part *l, const struct exchange *e);
    bool owes; /* as the member's; of this call of on_commit */
    /* Train's hook: has a checkpoint been requested? */
    bool (*checkpoint_due)(const struct driver_part *l);
    bool keeps_streams; /* strategy_keeps_streams: set by train */
    /* Train's hook, for `survey`: a machine has been measured. */
    void (*on_machine)(struct driver_part *l, const struct machine *machine);
    /* Asynchronous strategies: all workers' loops have ended, and `driver` must return. Raised with
     * SIGNAL_GROUP. */
    atomic_bool finish;
    void *train;
};

/* Has the run too few workers to train, and a checkpoint been requested? The global model stays as
 * it is meanwhile, so that the part calls on_commit at once. */
bool driver_part_saves(const struct driver_part *l);

/* The properties of a strategy in a job, which ops->configure fills in once. */
struct strategy_traits {
    /* Asynchronous: each worker takes its own share of the samples at its own pace. It calls
     * on_step and on_exchange instead of on_commit, and the run ends when all workers together have
     * taken the samples that it asks for. Otherwise synchronous: all members commit together. */
    bool is_async;
    /* Asynchronous workers take their samples by leases (data/lease.h). Otherwise the samples of
     * each follow from the progress. */
    bool takes_leases;
    /* The driver has a part (ops->driver) and holds the global model. Otherwise any member's model
     * is the global model. */
    bool driver_part;
    /* Copies of the global model come from a worker: the driver has no part, or one worker trains
     * alone, whose copies then include its optimizer's state. Set by strategy_find. */
    bool workers_hold_model;
    /* Workers can join a run that is under way. A joiner begins behind a commit point of its donor,
     * with that progress, m->join_state and the global model. */
    bool joinable;
    bool join_needs_no_model; /* the joiner gets the model in another way than from its donor */
    bool sends_gradients;     /* dx outlives the step, so each learner needs its own */
    bool
        replicas_agree; /* x and the optimizer's state are equal on all workers at a commit point */
    /* The samples of a worker are those of strategy_share in each step to come, as long as the
     * sharers stay. All commit together, and the metadata have the votes for a checkpoint. */
    bool fixed_shares;
    uint64_t round; /* approximate steps between two exchanges */
};

struct strategy_ops {
    const char *name; /* of its field in the job's strategy */
    /* Fill in the traits (zeroed before) of a finished job, and check what only the strategy can,
     * such as an optimizer that a sharded server cannot compute. ERR_INPUT, ERR_UNSUPPORTED naming
     * the field. */
    int (*configure)(const Paceline__Job *job, struct strategy_traits *traits, struct err *err);
    /* (optional) On a donor at a commit point: fill in the strategy's words of the join state.
     * Returns their number, at most JOIN_STATE_WORDS. JOIN_STATE_NOT_HERE: no joiner can begin
     * behind this commit point, but perhaps behind the next. */
    size_t (*export_join_state)(const struct member *m, uint64_t word[JOIN_STATE_WORDS]);
    /* Number and names of vectors as long as x that checkpoints contain besides the global model.
     */
    size_t extras;
    const char *extra_name[STRATEGY_EXTRAS_MAX];
    /* The worker's loop. It calls the learner, and spawns a task for work that overlaps with
     * training. Returns OK when the run has ended, or the error that ended it. */
    int (*worker)(struct member *m);
    /* (optional) End the background tasks: the run is over for all, or this worker has failed. */
    void (*close)(struct member *m);
    /* (optional) All loops have ended: fetch the global model to this worker, into m->model. */
    int (*collect_model)(struct member *m);
    /* In asynchronous strategies: no driver will return, and the loop has ended. Bring m->model
     * up to the newest global model that this worker has. Of two workers' models the later one has
     * the higher *version. false: this worker has none. */
    bool (*last_model)(struct member *m, uint64_t *version);
    /* The driver part, which is rank 0 of every exchange; called if traits.driver_part. A recovered
     * driver (l->lanes.needs_sync) continues from the workers' state; l->recovered has what they
     * reported. */
    int (*driver)(struct driver_part *l);
};

extern const struct strategy_ops strategy_single;
extern const struct strategy_ops strategy_sync;
extern const struct strategy_ops strategy_allreduce;
extern const struct strategy_ops strategy_async_allreduce;
extern const struct strategy_ops strategy_diloco;
extern const struct strategy_ops strategy_easgd;
extern const struct strategy_ops strategy_mpca;
extern const struct strategy_ops strategy_pace;
extern const struct strategy_ops strategy_gossip;
extern const struct strategy_ops strategy_ps;
extern const struct strategy_ops strategy_downpour;
extern const struct strategy_ops strategy_survey;
extern const struct strategy_ops strategy_full_batch;

/* The strategy that the finished job names, configured. ERR_INPUT, ERR_UNSUPPORTED by name. */
int strategy_find(const Paceline__Job *job, const struct strategy_ops **out,
                  struct strategy_traits *traits, struct err *err);

/* Has a run with this progress, on a training set of `records`, reached the job's `stop`? */
bool strategy_done(const Paceline__Job *job, const struct progress *progress, size_t records);

/* Steps of the next round: `most`, or fewer when the run's end comes before. At least 1. */
uint64_t strategy_round(const Paceline__Job *job, const struct progress *progress, size_t records,
                        uint64_t most);

/* Of an asynchronous worker: the samples of its next step, in its leases, or in its own stripe of
 * the stream: one part of each global batch. Where the batch grows, a worker's part is that of one
 * among all members, of the batch at this place in the stream. */
struct stretch strategy_async_share(struct member *m);

/* Count a step that was taken there, of m->share samples, and call on_step. */
int strategy_async_stepped(struct member *m);

/* Whole leases are multiples of so many samples: a step's, or 1 where the batch grows. */
uint64_t strategy_lease_grain(const Paceline__Job *job);

/* Steps of all workers together, where the batch grows, from the run's begin to this sample offset:
 * the integral of 1/B. */
double strategy_grown_steps(const Paceline__Job *job, uint64_t offset, size_t records);

/* A whole step of an asynchronous worker: learner_step, then strategy_async_stepped. Returns the
 * first error. */
int strategy_async_step(struct member *m);

/* Does this worker share the samples of the round that `progress` begins? A joiner does from the
 * round after its first exchange on; a leaving worker does not. */
bool strategy_shares(const struct member *m, const struct progress *progress);

/* A worker without a share contributes weight 0. */
void strategy_contribute_nothing(const struct member *m, struct exchange_meta *mine);

/* The workers that share the samples after an exchange with this metadata. */
struct members strategy_sharers(const struct exchange_meta *meta);

/* Take at most `most` steps of this worker's share of the round that `from` begins, from step
 * `first` on. Except for the first one, no step begins at time `until` or later. Adds their samples
 * and losses to `mine`. If the loss is not finite any more, the worker stops there with weight 0. A
 * worker without a share takes no step and has weight 0. */
int strategy_steps(struct member *m, const struct progress *from, uint64_t first, uint64_t most,
                   int64_t until, struct exchange_meta *mine);

/* This worker's vote for a flush (coll/exchange.h) in the lane's next exchange, the `last` of the
 * run or not: lossy wires deliver what they owe before a checkpoint, a stop, this worker's leave
 * and the end. */
bool strategy_flush_vote(const struct member *m, const struct exchange *lane, bool last);

/* Are the states of streams, of so many floats, kept in checkpoints of several workers? Each sends
 * those that it has at the commit point of a checkpoint, which the metadata announce; slices add
 * theirs up, and offer them with the model. */
bool strategy_keeps_streams(const Paceline__Job *job, const struct strategy_traits *traits,
                            size_t floats);

/* This worker's vote for that. */
bool strategy_checkpoint_vote(const struct member *m);

/* Is the run done after `steps` more of `samples` each? */
bool strategy_done_after(const struct member *m, uint64_t steps, uint64_t samples);

/* Take τ steps of a round that all members share, and fill in `mine`. */
int strategy_local_steps(struct member *m, uint64_t tau, struct exchange_meta *mine);

/* Does the wire round? False before a job is complete. */
bool strategy_is_lossy(const Paceline__Job *job);

/* Does it leave numbers out (codec_drops)? */
bool strategy_wire_drops(const Paceline__Job *job);

/* Such a wire, and the optimizers' states travel: an error, which is returned. */
int strategy_refuse_average(const char *strategy, struct err *err);

/* The job's options of exchanges. */
struct exchange_config strategy_exchange_config(const Paceline__Job *job);

/* collective.chunk_kb in floats: the pieces of exchanges and of transfers. */
size_t strategy_chunk(const Paceline__Job *job);

/* `allreduce`: the number of equal buckets of about the job's size into which dx of so many floats
 * is cut; the first that leaves is the last part (schedule_cut). */
enum { ALLREDUCE_BUCKETS_MAX = 16 };
size_t allreduce_buckets(const Paceline__Job *job, size_t floats);

/* `ps`: the consistency of the job's server. */
struct consistency_config ps_consistency(const Paceline__Job *job);

/* Samples of a step of all sharers together in the round that `progress` begins, on a training set
 * of `records`: `batch` of each replica, the batch that they share out (global_batch,
 * batch_growth), or with `full_batch` all records. */
uint64_t strategy_step_samples(const Paceline__Job *job, const struct progress *progress,
                               size_t records);

/* The samples of `node`, a sharer, at step `t` of the round, whose steps have `samples` each. The
 * sharers cut these in the order of their numbers into parts that differ by one sample at most. */
struct stretch strategy_share(const struct progress *progress, uint32_t node, uint64_t t,
                              uint64_t samples);

/* The weight of a gradient over `count` of a step's `samples` in the mean over all sharers: 1 where
 * all have equally many. */
double strategy_share_weight(const struct progress *progress, size_t count, uint64_t samples);

/* The factor of the schedule's rates in a step of `samples` (solver.lr_batch: linear scaling, Goyal
 * et al. 2017, §2.1). */
double strategy_rate_scale(const Paceline__Job *job, uint64_t samples);

/* This worker, a sharer, begins step `t` of the round of `steps` steps that `from` begins: returns
 * its samples, and sets the factor of its rate. Where the batch grows, the learner gets a hint of
 * the samples that follow, as if the sharers stayed. */
struct stretch strategy_begin_step(struct member *m, const struct progress *from, uint64_t t,
                                   uint64_t steps);

/* The round of `steps` of `samples` each has committed with this metadata: advance the progress. */
void strategy_advance(struct progress *progress, uint64_t steps, uint64_t samples,
                      const struct exchange_meta *meta);

#endif
