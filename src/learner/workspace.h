/* A workspace: the planned nets of a job with their activations, and a loader of batches. Learners
 * that never compute at the same moment (those of one simulation) share one; those of one group
 * (local_group.h) do, and have a net each in it. */
#ifndef PL_LEARNER_WORKSPACE_H
#define PL_LEARNER_WORKSPACE_H

#include "base/logger.h"
#include "data/loader.h"
#include "learner/corpus.h"
#include "nn/net.h"

/* The own memory of a learner of a group; the first has the workspace's own net, and its caller's
 * vectors. */
struct inner_space {
    struct net *train;
    struct vec dx, s; /* once workspace_fill has been called */
};

struct workspace {
    struct arena arena;
    const struct kernels *kernels;
    uint64_t memory_budget;         /* of the process, bytes; 0: none */
    struct tuner *tuner;            /* of the kernels' choices; NULL: a rule */
    const struct open_watch *watch; /* while it is made; NULL: none */
    uint64_t planned;               /* planned nets that it was told of */
    struct net *train, *test;       /* for batch / (1 + others) records, and for `batch` */
    int threads;                    /* that both are planned for */
    struct net *fewer;              /* as `train`, for fewer threads; NULL: not requested, */
    int fewer_threads;              /* and for how many */
    float *room;                    /* train, test and apart lie here, one over the other */
    size_t room_floats;
    bool only_tests;                     /* train is NULL */
    struct model_slice slice;            /* of the model that the nets are (nn/net.h), */
    const char *slices_from, *slices_to; /* and of which layers; copies, or NULL */
    const char *keep;                    /* a blob that tests keep (nn/net.h), or NULL */
    bool requested;                      /* workspace_keep has planned again */
    struct net *separate; /* as `test`, for test records of another size; NULL: there are none */
    struct shape separate_shape; /* of those, */
    struct batch separate_records;
    struct inner_space *other; /* of the job's `local` learners but the first */
    size_t others;
    size_t batch;         /* records that the nets are planned for: the job's batch, or less where
                             the workers share a batch out and memory has no room for it */
    struct shape record;  /* that it was planned for, */
    struct fields fields; /* its fields, */
    size_t record_floats; /* and its number of floats */
    struct loader loader; /* of training batches; its spare one serves evaluation */
};

/* Load the job's net and plan it for the corpus's records. A net that tests a SoftmaxWithLoss
 * without an Accuracy gets one (model/judge_net.h); a job that stops at an error rate needs it.
 * `kernels: auto` takes oneDNN, and plain C where oneDNN has no path for some layer, with a line in
 * the log. Where the workers share a batch out (job_shares_batch), a share that has no room in
 * memory is halved until a part of it has. The tuner (tensor/tuner.h) chooses among codes, unless
 * it is NULL or the job deterministic: then a rule does. A net that does not fit is refused before
 * anything is timed. `watch` (may be NULL) is called for each net and each timing, and may cancel.
 * ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM, ERR_CANCELLED */
int workspace_create(const Paceline__Job *job, const struct corpus *corpus,
                     const struct logger *log, struct tuner *tuner, const struct open_watch *watch,
                     struct workspace **out, struct err *err);

/* The same where the process is to have no more than `memory_budget` bytes of memory, with what it
 * has already; 0: as many as there are. */
int workspace_create_within(uint64_t memory_budget, const Paceline__Job *job,
                            const struct corpus *corpus, const struct logger *log,
                            struct tuner *tuner, const struct open_watch *watch,
                            struct workspace **out, struct err *err);

/* The same for slice `slice` of the job's model, or SLICE_ALL. learner->meet must be set for a
 * slice's nets. */
int workspace_create_slice(size_t slice, uint64_t memory_budget, const Paceline__Job *job,
                           const struct corpus *corpus, const struct logger *log,
                           struct tuner *tuner, const struct open_watch *watch,
                           struct workspace **out, struct err *err);

/* The same in three steps, for a caller without records: plan the nets for records of that shape;
 * check whether a set's records fit (ERR_INPUT, with the name of the field that named it); and take
 * training batches from `set` (borrowed, not empty) from now on, in place of the previous one. The
 * last needs a loader that is not started (ERR_NOMEM). Evaluation needs a set, too: its batches are
 * in the loader. */
int workspace_plan(const Paceline__Job *job, const struct shape *record,
                   const struct fields *fields, const struct logger *log, struct tuner *tuner,
                   struct workspace **out, struct err *err);
int workspace_accepts(const struct workspace *ws, const struct dataset *set, const char *field,
                      struct err *err);
int workspace_feed(struct workspace *ws, const Paceline__Job *job, const struct dataset *set,
                   struct err *err);

/* The same without a net for training, for a caller that only tests or reads outputs: the blob
 * `keep` (NULL: the net's outputs), borrowed for the call. `slice`: of the job's, or SLICE_ALL. */
int workspace_plan_tests(size_t slice, const Paceline__Job *job, const struct shape *record,
                         const struct fields *fields, const struct logger *log, struct tuner *tuner,
                         const char *keep, struct workspace **out, struct err *err);

/* Have tests keep that blob of theirs, which there must be; the net is planned again where they do
 * not. ERR_UNSUPPORTED, ERR_NOMEM; all is then as before */
int workspace_keep(struct workspace *ws, const Paceline__Job *job, const char *blob,
                   struct err *err);

/* A net whose tables of parameters are the job's. */
const struct net *workspace_net(const struct workspace *ws);

/* The training net planned for `threads` threads, at most as many as the workspace was planned for,
 * and set them (kernels_set_threads) for the calling thread. The net for fewer threads is made at
 * the first request, and again when the number changes; `out` is valid until then. It shares the
 * memory of the others. No kernel is timed for it: the tuner's choices hold, else a rule.
 * ERR_UNSUPPORTED, ERR_NOMEM: the threads are as before */
int workspace_net_for(struct workspace *ws, const Paceline__Job *job, int threads, struct net **out,
                      struct err *err);

/* Make the other learners' vectors, at the first call. A caller that only evaluates does not need
 * them. ERR_NOMEM */
int workspace_fill(struct workspace *ws);

/* Prepare batches ahead, on tasks of `world`, for a caller with so many threads. ERR_NOMEM */
int workspace_load_ahead(struct workspace *ws, struct world *world, int threads, struct err *err);

void workspace_free(struct workspace *ws);

/* Of a training step at that batch, over all of a group; its first learner's vectors apart. */
struct net_memory workspace_memory(const struct workspace *ws);
double workspace_flops(const struct workspace *ws);

/* Bytes that there are for tests alone. */
size_t workspace_testing(const struct workspace *ws);

struct evaluation {
    double error; /* share of records that were wrong; -1: the net has no accuracy */
    double loss;  /* mean */
    size_t count;
};

/* Add records [first, first + count) of a set to `sum`: how evaluations are cut into pieces.
 * ERR_INPUT, ERR_IO, ERR_NOMEM: a record cannot be read; `sum` is then of no use. */
int workspace_evaluate(struct workspace *ws, const struct dataset *set, size_t first, size_t count,
                       const struct vec *x, struct vec *s, struct net_result *sum, struct err *err);

/* The same by a slice of the model, which calls `meet` where slices exchange a blob; all of them
 * evaluate the same records. The points of the nets for tests have numbers behind those of the net
 * for training, below workspace_points. Also the errors of `meet`. */
struct slice_meeting {
    int (*meet)(void *user, const struct net_point *point);
    void *user;
    bool gathers_records; /* each slice reads a part of the records: `meet` gathers them, whose
                             number of `outputs` differs from batch to batch */
};
int workspace_evaluate_slice(struct workspace *ws, const struct dataset *set, size_t first,
                             size_t count, const struct vec *x, struct vec *s,
                             const struct slice_meeting *meeting, struct net_result *sum,
                             struct err *err);
size_t workspace_points(const struct workspace *ws);

/* A forward pass, of a slice with `meeting`, for which the points get numbers from `before` on;
 * else NULL. The errors of `meet`. */
int slice_meeting_forward(const struct slice_meeting *meeting, size_t before, struct net *net,
                          const struct vec *x, struct vec *s, const struct net_batch *batch,
                          struct net_result *result);

/* A forward pass of the net for tests over one batch; `meeting` of a slice, else NULL. The errors
 * of `meet`. */
int workspace_pass(struct workspace *ws, const struct vec *x, struct vec *s,
                   const struct net_batch *batch, const struct slice_meeting *meeting,
                   struct net_result *result);

struct evaluation evaluation_of(const struct net_result *sum);

#endif
