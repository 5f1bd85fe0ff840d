/* Strategies: one paper algorithm a file, worker and driver side together. A strategy moves flat
 * vectors between learners; it never sees a layer, and never evaluates, dumps or logs. */
#ifndef PL_STRATEGY_STRATEGY_H
#define PL_STRATEGY_STRATEGY_H

#include "coll/exchange.h"
#include "data/lease_cursor.h"
#include "job/job.h"
#include "learner/learner.h"

/* How far the run is: what all members agree on at a commit point. */
struct progress {
    uint64_t sample_offset; /* in the endless stream of records: those before it are committed */
    uint64_t steps;         /* of each worker */
    uint64_t exchanges;     /* of all lanes */
    uint64_t
        samples_used; /* records before `place` that counted; train keeps this book. Asynchronous:
                         that this worker has gone over itself, since it began */
    struct members sharers; /* share the records of the round under way */
};

void progress_encode(const struct progress *progress, struct buf *out);
void progress_decode(struct byte_reader *in, struct progress *out);

enum { STRATEGY_EXTRAS_MAX = 2 };

/* Exchanges that a node takes part in, each in a lane of its own, numbered from 0. */
struct lanes {
    struct exchange *at[ROSTER_LANES_MAX];
    size_t count;
    const struct join_state *joined; /* of a worker that has come to a run under way; or NULL */
    /* Of a recovered driver: it has no result of these lanes and does not know how many exchanges
     * are completed, until exchange_sync. */
    bool needs_sync;
};

enum { JOIN_STATE_WORDS = 24 };
#define JOIN_STATE_NOT_HERE SIZE_MAX

/* The state that a donor sends a joiner besides the progress and the model: the completed exchanges
 * of each lane, and the words of ops->export_join_state. */
struct join_state {
    uint32_t lanes, words;
    uint64_t completed[ROSTER_LANES_MAX];
    uint64_t word[JOIN_STATE_WORDS];
};

/* Open the next lane, for vectors of n floats: exchange_init with memory from the arena, `lanes`
 * owning it until lanes_release. A joiner's begins where its donor stood, whatever `completed` is.
 * ERR_NOMEM; ERR_PROTOCOL: the donor had no such lane */
int lanes_open(struct lanes *lanes, struct group *group, bool driver_takes_part, size_t n,
               const struct exchange_config *config, uint64_t completed, struct arena *arena,
               struct exchange **out);
void lanes_release(struct lanes *lanes);

/* The global model on this node, for evaluation and checkpoints. */
struct global_model {
    const struct vec *x, *s;
    const struct vec *state; /* the optimizer's, where it goes with the model; states 0: does not */
    size_t states;
    uint64_t updates; /* that made the state */
    const struct vec
        *extra; /* the strategy's own, as ops->extra_name says; NULL: not there (yet) */
};

/* The world's signals, by which tasks of a node wake each other: 1 is the group's, 2 and 3 the
 * loader's, 30 and 31 the local group's, 32 and 33 the key-value store's. Of a strategy: */
enum { STRATEGY_SIGNAL_FIRST = 4, STRATEGY_SIGNAL_LAST = 29 };

/* A worker as its strategy sees it. */
struct member {
    struct world *world;
    struct group *group; /* NULL under `single` */
    struct learner *learner;
    const Paceline__Job *job;
    struct arena *arena;      /* for the strategy's vectors */
    struct progress start;    /* where the run began, or resumes from */
    struct progress progress; /* where it is; asynchronous: as far as this worker has come itself */
    bool leased;              /* it takes its records by leases, which train brings: */
    struct lease_cursor lease_cursor; /* (data/lease_cursor.h) */
    struct lanes lanes; /* opened by the strategy; when its loop has ended well, train settles them
                           (exchange_sync) until the run is over, but for those that a background
                           task still does */
    struct global_model
        model; /* brought by train: the learner's own; the strategy may know better */
    /* ops->extras vectors that a checkpoint held, or a donor; NULL: none */
    const struct vec *resumed;
    const struct join_state *join_state; /* this worker came to a run under way; NULL: it did not */
    void *own;                           /* the strategy's */
    /* Train's hook, called by the strategy at each commit point, between two learner calls, with
     * the progress already moved on. `e` has just completed; NULL under `single`. ERR_STOP: the run
     * ends here, for every member. */
    int (*on_commit)(struct member *m, const struct exchange *e);
    /* Between two steps of a round, which strategy_steps calls: all that a joiner needs is as it
     * was at the last commit point. In asynchronous strategies, while a strategy waits for
     * somebody. */
    int (*on_step_boundary)(struct member *m);
    /* The same for an asynchronous worker: after each step (strategy_async_step calls it), and
     * after each of this worker's own exchanges, which it numbers from 1. ERR_STOP: the run ends,
     * for this worker now, and for others when they hear of it. */
    int (*on_step)(struct member *m);
    int (*on_exchange)(struct member *m, uint32_t lane, const struct exchange_cost *cost);
    /* m->hold is used up: take what leases have come meanwhile. Waits for none. */
    void (*on_leases_exhausted)(struct member *m);
    void *train; /* the hooks' own */
};

/* The driver, where a strategy gives it a part. */
struct driver_part {
    struct world *world;
    struct group *group;
    const struct logger *log;
    const Paceline__Job *job;
    const struct segments *table; /* of x */
    struct arena *arena;
    size_t records;            /* of the training set */
    struct vec x, s;           /* the joint model and its state; train brings their first values */
    struct global_model model; /* brought by train: x and s; the strategy may know more */
    struct global_model resumed; /* from a checkpoint: state, extra */
    struct progress progress;
    struct lanes lanes; /* as the member's */
    /* This driver has returned to workers that continued: what ops->tell of one of them said, at
     * its last commit point, which `course` is that of. NULL: it has not. */
    const uint64_t *recovered;
    /* And of course.place, in asynchronous strategies: what none of them has taken. */
    uint64_t untaken;
    /* As the member's. In asynchronous strategies: called with NULL after each change of the joint
     * model; train fills in the progress. */
    int (*on_commit)(struct driver_part *l, const struct exchange *e);
    /* the strategy is asynchronous, and all have ended: return from `driver`. Raised with
     * SIGNAL_GROUP. */
    atomic_bool finish;
    void *train;
};

struct strategy_ops {
    const char *name;     /* of its field in the job's strategy */
    bool sends_gradients; /* dx outlives the step: each learner needs its own */
    bool replicas_agree;  /* x and optimizer state are equal on all workers at a commit point */
    /* (optional) Is the strategy asynchronous? Each takes its own share of the stream of records at
     * its own pace, calls `stepped` and `exchanged` and not `committed`, and the run ends when all
     * together have taken as many records as it asks for. NULL: they are. */
    bool (*is_async)(const Paceline__Job *job);
    /* (optional) Do asynchronous workers go in rounds all the same, so that whose records are whose
     * is arithmetic? NULL: never; each takes them by leases (data/lease.h). */
    bool (*has_fixed_partition)(const Paceline__Job *job);
    /* (optional) Beyond what the job's own checks see: an optimizer that a sharded server cannot
     * give, say. ERR_INPUT, ERR_UNSUPPORTED naming the field. */
    int (*check)(const Paceline__Job *job, struct err *err);
    uint64_t (*round)(const Paceline__Job *job); /* steps between two exchanges, about */
    /* (optional) Can workers come to a run of this job that is under way? NULL: never. One begins
     * behind a commit point of a member's, with its progress, m->admission, and the joint model. */
    bool (*joinable)(const Paceline__Job *job);
    /* (optional) Does the donor not send the model, as the joiner gets it otherwise? NULL: it
     * does. */
    bool (*join_needs_no_model)(const Paceline__Job *job);
    /* (optional) A donor, at a commit point: what else a joiner has to know to begin behind it; at
     * most JOIN_STATE_WORDS, their number returned. JOIN_STATE_NOT_HERE: none can begin behind this
     * one, perhaps behind the next. */
    size_t (*export_join_state)(const struct member *m, uint64_t word[JOIN_STATE_WORDS]);
    /* Vectors as long as x that go into checkpoints besides the global model, by these names. */
    size_t extras;
    const char *extra_name[STRATEGY_EXTRAS_MAX];
    /* The worker's loop itself, straight-line, calling the learner; it spawns a task for work that
     * overlaps. Returns OK when the run has ended, or what broke it. */
    int (*worker)(struct member *m);
    /* (optional) The run is over for all, or this worker has failed: end the background tasks. */
    void (*close)(struct member *m);
    /* (optional) All loops have ended: bring the joint model to this worker, into m->joint. */
    int (*collect_model)(struct member *m);
    /* (optional) Does the driver have a part, and the joint model, in this job? NULL: never.
     * Otherwise the joint model is that of any member. */
    bool (*driver_hosts_model)(const Paceline__Job *job);
    /* Its part, in every exchange as rank 0. One that has died and return (l->lanes.blank) takes it
     * up again from what workers have; l->back says what they told it. */
    int (*driver)(struct driver_part *l);
};

extern const struct strategy_ops strategy_single;
extern const struct strategy_ops strategy_sync;
extern const struct strategy_ops strategy_allreduce;
extern const struct strategy_ops strategy_async_allreduce;
extern const struct strategy_ops strategy_diloco;
extern const struct strategy_ops strategy_easgd;
extern const struct strategy_ops strategy_mpca;
extern const struct strategy_ops strategy_gossip;
extern const struct strategy_ops strategy_ps;
extern const struct strategy_ops strategy_downpour;

/* The strategy that the finished job names, checked. ERR_INPUT, ERR_UNSUPPORTED by name. */
int strategy_find(const Paceline__Job *job, const struct strategy_ops **out, struct err *err);

/* Has the driver a part? Do the strategy is asynchronous? */
bool strategy_driver_hosts_model(const struct strategy_ops *strategy, const Paceline__Job *job);
bool strategy_is_async(const struct strategy_ops *strategy, const Paceline__Job *job);

/* Do they take their records by leases? */
bool strategy_leases(const struct strategy_ops *strategy, const Paceline__Job *job);

/* Can workers come to a run of this job that is under way? */
bool strategy_joinable(const struct strategy_ops *strategy, const Paceline__Job *job);

bool strategy_join_needs_no_model(const struct strategy_ops *strategy, const Paceline__Job *job);

/* For ops: always. */
bool strategy_always(const Paceline__Job *job);

/* Has a run that stands there, on a training set of so many records, done what `stop` asks for? */
bool strategy_done(const Paceline__Job *job, const struct progress *progress, size_t records);

/* Steps of the next round: `most`, or fewer when the run's end comes before. At least 1. */
uint64_t strategy_round(const Paceline__Job *job, const struct progress *progress, size_t records,
                        uint64_t most);

/* An asynchronous worker: where its next step's records are: in its leases; or its own stripe of
 * the stream, one batch of each that all who began the run would share. */
uint64_t strategy_async_offset(struct member *m);

/* A step has been taken there: counts it, then the hook `stepped`. */
int strategy_async_stepped(struct member *m);

/* A whole free step: learner_step, counted. Returns the status of either. */
int strategy_async_step(struct member *m);

/* Has this worker a share of the records of the round that `course` begins? A joiner has a share
 * from the round after its first exchange; a leaving worker has none any more. */
bool strategy_shares(const struct member *m, const struct progress *progress);

/* A worker without a share contributes weight 0. */
void strategy_contribute_nothing(const struct member *m, struct exchange_meta *mine);

/* The workers that share the samples after an exchange with this metadata. */
struct members strategy_sharers(const struct exchange_meta *meta);

/* At most `most` steps, from step `first` on, of this worker's share of what all of from->who take
 * from from->place on; but for the first of them, none begins at `until` or later. Their samples
 * and losses are added to `mine`. A worker whose loss is not finite any more has nothing to give:
 * it stops there, with weight 0. A worker without a share takes no step, and has weight 0. */
int strategy_steps(struct member *m, const struct progress *from, uint64_t first, uint64_t most,
                   int64_t until, struct exchange_meta *mine);

/* τ steps of a round that all share, and what they stand for. */
int strategy_local_steps(struct member *m, uint64_t tau, struct exchange_meta *mine);

/* How the job wants vectors exchanged. */
struct exchange_config strategy_exchange_config(const Paceline__Job *job);

/* collective.chunk_kb in floats: the pieces of exchanges and of transfers. */
size_t strategy_chunk(const Paceline__Job *job);

/* The samples that `node` takes in one step `t` of the round: their offset. The sharers split each
 * global batch into equal parts, in the order of their numbers. */
uint64_t strategy_sample_offset(const struct progress *progress, uint32_t node, uint64_t t,
                                uint32_t batch);

/* The round of `steps` is committed with this exchange metadata: move on. */
void strategy_advance(struct progress *progress, uint64_t steps, uint32_t batch,
                      const struct exchange_meta *meta);

#endif
