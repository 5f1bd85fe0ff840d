/* A learner: a net, records and an optimizer over flat vectors; it takes training steps.
 *
 * x changes only inside learner_update or between two learner calls. One task uses a learner;
 * `threads` compute threads serve it. It may be a group of several (local_group.h), which is
 * transparent to its caller: the job's batch is that of the whole group, and so are pace, steps and
 * samples. */
#ifndef PL_LEARNER_LEARNER_H
#define PL_LEARNER_LEARNER_H

#include "learner/carried_state.h"
#include "learner/local_group.h"
#include "learner/thread_adapter.h"
#include "optim/optim.h"
#include "world/world.h"

enum { LEARNER_EXPECTS = LOADER_AHEAD_MAX, LEARNER_RANGES_MAX = 256 };

/* A learner that has records of its own: an offset then says how far the run is, and not which
 * records these are. It takes its own ones pass after pass, each in an order of its own. */
struct learner_share {
    struct sampler sampler;                 /* ranges 0: it has no records of its own */
    struct range range[LEARNER_RANGES_MAX]; /* of the training set */
    uint64_t next;                          /* place of the next step in its own stream */
    uint64_t used[LEARNER_RANGES_MAX];      /* by range: samples of its steps */
};

/* dx is finished from `from` to its end when `share` of the step (of 1) is done. */
struct learner_mark {
    size_t from;
    double share;
};

struct learner {
    struct world *world; /* NULL: outside any, its work costs nothing but itself */
    const Paceline__Job *job;
    const struct corpus *corpus;
    struct workspace *ws;
    struct local_group *group;
    const struct segments *table; /* of x */
    struct vec both, x, s;        /* the model: x, then s, in one vector; and its two parts */
    struct vec dx;
    struct vec
        before; /* Σ of the step's parts before the last; empty where each step is one part */
    struct optim optim;
    struct carried_state carried;
    struct learner_share share; /* (learner_take_share) */
    size_t epoch_records;       /* samples of an epoch of the run; at first those of the set */
    uint64_t steps;             /* taken by this learner */
    uint64_t samples;           /* samples of those steps */
    size_t taken;               /* of the last one */
    double loss;                /* mean loss of the last step's records */
    double steps_s;             /* seconds of all its steps, with their waits for records, */
    double late_s;              /* and, in a simulation, of these waits */
    struct err err;             /* message of a failed step */
    _Atomic uint64_t *progress; /* counts steps begun, for heartbeats; may be NULL */
    double step_seconds;        /* seconds of a step on a core of speed 1; 0 in the real world */
    /* (optional) Called during learner_gradient, on its task, from the end of dx to its beginning:
     * dx is finished from `from` on. With several `local` learners it is called once. Not for
     * learners that share dx. Of a slice of a model the caller adds up what dx has of data-parallel
     * layers (net_ends_with_sum). An error ends the step. */
    int (*finished)(void *user, size_t from);
    void *user;
    /* Of a slice of a model: called on the learner's task where the slices exchange a blob
     * (nn/net.h), until that is done; before, the time of the arithmetic has passed. An error ends
     * the step. */
    int (*meet)(void *meet_user, const struct net_point *point);
    void *meet_user;
    struct thread_adapter adapter;
    /* Its own: */
    int64_t begun;                           /* the step under way */
    uint64_t start;                          /* offset of the last step */
    struct stretch follows[LEARNER_EXPECTS]; /* the following steps, */
    size_t known;                            /* as far as they are known */
    size_t part;                             /* finished batches of the step */
    size_t parts;                            /* of `parts` */
    float weight;                            /* the share of the last one's records in the step; */
    size_t gathered;                         /* dx is the whole step's from here on */
    struct learner_mark *mark;
    size_t marks;
    /* Of a slice of a model: seconds of the whole net's step; the share of it that has passed; when
     * it continued. */
    double seconds, spent;
    int64_t resumed;
};

/* Prepare a learner. All arguments are borrowed and must outlive it. x, s and the optimizer's state
 * come from `arena`, and so does dx, unless `dx` is given, which learners may share. x and s get
 * the job's initial values. ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM */
int learner_init(struct learner *l, struct world *world, const Paceline__Job *job,
                 const struct corpus *corpus, struct workspace *ws, struct arena *arena,
                 struct vec *dx, struct err *err);

/* The same with x and s 0, for callers that receive them. Drawing 25 million values takes a third
 * of a second, and touches all their memory. */
int learner_init_unset(struct learner *l, struct world *world, const Paceline__Job *job,
                       const struct corpus *corpus, struct workspace *ws, struct arena *arena,
                       struct vec *dx, struct err *err);

/* Train on the records of these ranges of the training set alone (1 to LEARNER_RANGES_MAX, none
 * empty), from the beginning of pass `pass` or of the next one. It keeps the counts of `used`.
 * ERR_CANCELLED */
int learner_take_share(struct learner *l, const struct range *range, size_t ranges, uint64_t pass);

/* Compute threads of each task that computes: the job's, shared out among its `local` learners, at
 * least 1. The caller that plans for a learner and calls it sets them (kernels_set_threads). */
int learner_threads(const Paceline__Job *job);

/* Let the learners of the group work at the same time, on tasks of `world`, until learner_stop,
 * which must come before the arena and the workspace are released. step_seconds must be set.
 * Without this call they compute in turns. No effect for one learner. ERR_NOMEM, ERR_CANCELLED */
int learner_start(struct learner *l, struct world *world, struct err *err);
void learner_stop(struct learner *l);

/* dx ← gradient of the mean loss over the records at places [start, start + count) of the training
 * set's endless stream of epochs; count ≤ job_step_records, unless the workers share a batch out
 * (job_shares_batch) or all records (job_takes_all). More records than the nets are planned for are
 * computed part by part; the result is that of one large batch, except for layers that depend on
 * the whole batch, and for the last bits.
 *
 * ERR_DIVERGED  the loss is not finite; dx is not to be used
 * ERR_INPUT, ERR_IO, ERR_NOMEM: a record cannot be read; learner->err names it. Or the errors of
 * the world's work, of waits for the group, of the sleep for the job's pace */
int learner_gradient(struct learner *l, uint64_t start, size_t count);

/* The `count` (≤ LEARNER_EXPECTS) steps after the next one will probably take these samples: their
 * records are prepared meanwhile. Without this hint, or with a wrong one, such a step may
 * wait for them. */
void learner_expect(struct learner *l, const struct stretch *step, size_t count);

/* x ← the optimizer's update by dx at the schedule's rate; `start` as for learner_gradient. */
void learner_update(struct learner *l, uint64_t start);

/* The same without the solver's rule: x ← x − η (dx + decay·x). `step` is as long as x, finite, and
 * receives what is subtracted. */
void learner_update_plainly(struct learner *l, uint64_t start, struct vec *step);

/* Of a slice, before an update by `weight` times such a gradient, of which it has a part: where the
 * solver clips the gradient the slices add up its norm. meet's error, or OK */
int learner_agree_on_norm(struct learner *l, const struct vec *part, double weight);

/* One step: learner_gradient, learner_agree_on_norm, then learner_update. ERR_UNSUPPORTED: a solver
 * type of full batches, with its message. */
int learner_step(struct learner *l, uint64_t start, size_t count);

#endif
