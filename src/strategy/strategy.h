/* Strategies: one paper algorithm a file, worker and driver side together. A strategy moves flat
 * vectors between learners; it never sees a layer, and never evaluates, dumps or logs. */
#ifndef PL_STRATEGY_STRATEGY_H
#define PL_STRATEGY_STRATEGY_H

#include "coll/exchange.h"
#include "learner/learner.h"

/* How far the run is: what all members agree on at a commit point. */
struct course {
    uint64_t place;     /* in the endless stream of records: those before it are committed */
    uint64_t steps;     /* of each worker */
    uint64_t exchanges; /* of lane 0 */
    struct members who; /* share the records of the round under way */
};

void course_encode(const struct course *course, struct buf *out);
void course_decode(struct cut *in, struct course *out);

/* A worker as its strategy sees it. */
struct member {
    struct world *world;
    struct group *group; /* NULL under `single` */
    struct learner *learner;
    const Paceline__Job *job;
    struct arena *arena; /* for the strategy's vectors */
    struct course course;
    struct exchange *lane; /* opened by the strategy; when its loop has ended well, train settles it
                              (exchange_settle) until the run is over. NULL under `single` */
    /* Train's hook, called by the strategy at each commit point, between two learner calls, with
     * the course already moved on. `e` has just completed; NULL under `single`. ERR_STOP: the run
     * ends here, for every member. */
    int (*committed)(struct member *m, const struct exchange *e);
    void *train; /* the hook's own */
};

/* The driver, where a strategy gives it a part. */
struct leader {
    struct world *world;
    struct group *group;
    const Paceline__Job *job;
    struct arena *arena;
    size_t records;  /* of the training set */
    struct vec x, s; /* the joint model and its state; train brings their first values */
    struct course course;
    struct exchange *lane;                                        /* as the member's */
    int (*committed)(struct leader *l, const struct exchange *e); /* as the member's */
    void *train;
};

struct strategy_ops {
    const char *name;     /* of its field in the job's strategy */
    bool sends_gradients; /* dx outlives the step: each learner needs its own */
    bool replicas_agree;  /* x and optimizer state are equal on all workers at a commit point */
    uint64_t (*round)(const Paceline__Job *job); /* steps between two exchanges */
    /* The worker's loop itself, straight-line, calling the learner; what runs beside it is a task
     * that it spawns. Returns OK when the run has ended, or what broke it. */
    int (*worker)(struct member *m);
    /* (optional) The driver's, where the joint model lives there. Takes part in every exchange, as
     * rank 0. Without it the joint model is that of any member. */
    int (*driver)(struct leader *l);
};

extern const struct strategy_ops strategy_single, strategy_sync, strategy_allreduce;

/* The strategy that the finished job names. ERR_UNSUPPORTED by name. */
int strategy_find(const Paceline__Job *job, const struct strategy_ops **out, struct err *err);

/* Has a run that stands there, on a training set of so many records, done what `stop` asks for? */
bool strategy_done(const Paceline__Job *job, const struct course *course, size_t records);

/* Steps of the next round: `most`, or fewer when the run's end comes before. At least 1. */
uint64_t strategy_round(const Paceline__Job *job, const struct course *course, size_t records,
                        uint64_t most);

/* How the job wants vectors exchanged. */
struct exchange_how strategy_exchange_how(const Paceline__Job *job);

/* Place of the records that `node` takes in step `t` of the round: its share of the global batch
 * that all of course->who split, equal shares in order of their numbers. */
uint64_t strategy_place(const struct course *course, uint32_t node, uint64_t t, uint32_t batch);

/* The round of `steps` is committed with this tally: move on. */
void strategy_advance(struct course *course, uint64_t steps, uint32_t batch,
                      const struct tally *tally);

#endif
