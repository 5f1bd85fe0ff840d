/* Running a job: the driver's node and the workers'. Both are main tasks of a node, for either
 * world. */
#ifndef PL_TRAIN_TRAIN_H
#define PL_TRAIN_TRAIN_H

#include "base/logger.h"
#include "group/group.h"
#include "job/job.h"
#include "learner/workspace.h"
#include "train/tracer.h"
#include "train/worker_cache.h"

#include <stdatomic.h>

struct driver;
struct worker;

/* An observer, where all nodes live in one process and one runs at a time: it is called with a
 * node's state once it has begun, and again, with NULL, before that state ends. To be read, between
 * two events of a simulation. A function that is NULL is not called. */
struct train_watch {
    void (*driver)(void *user, const struct driver *d);
    void (*worker)(void *user, uint32_t node, const struct worker *w);
    void *user;
    struct group_observer exchanges;
};

/* The resources of a node of this process, which it may share with the process's other nodes. */
struct train_host {
    const struct logger *log;
    struct tuner *tuner; /* chooses kernels (tensor/tuner.h); NULL: they go by rule */
    struct group_timing timing;
    const char *name; /* of this machine, for messages; NULL: it has none */
    const char *cpu;  /* its processor, and its memory in bytes; NULL, 0: unknown */
    uint64_t memory;
    double
        step_seconds; /* seconds of a step at the job's batch on a node of speed 1; 0 when real */
    double open_seconds; /* seconds of opening its data; 0 when real */
    /* Shared by the nodes of a simulation; NULL: the node opens its own. */
    const struct corpus *corpus;
    /* Where a worker's cache of records may have a file; NULL: nowhere. */
    struct disk *cache_disk;
    const char *cache_folder;
    /* The run's directory, if a worker has it, too, for a checkpoint in place of its driver; NULL:
     * it has not (worker_checkpoint.h). */
    struct disk *run_disk;
    const char *run_folder;
    uint64_t run;     /* its number, as in the term file; 0: not known */
    bool one_machine; /* all workers of the run are on this machine, and share its memory */
    struct workspace *ws;
    struct vec *dx; /* for strategies that do not send gradients */
    /* ns for which a worker continues without its driver and calls it; 0: not at all. */
    int64_t retry;
    const char *const *drivers; /* addresses, as the group's; NULL: it has the one */
    atomic_bool *given_up;      /* set when it has not return in that time; may be NULL */
    /* Set by anyone: a worker is to leave the run, in good order; may be NULL. */
    const atomic_int *leave, *pause; /* the same twice */
    bool *asked_to_leave; /* set when a worker has left at the driver's request; may be NULL */
    bool *left;           /* set when a worker ends since it has left the run so; may be NULL */
    struct err *why; /* written when a worker ends with an error that it knows the cause of; may be
                      * NULL */
    /* The canonical folder outside of which a worker opens nothing; the job's data paths are
     * relative to it. NULL: the job's paths are used unchanged. */
    const char *data_root;
    const char *data_urls; /* with a root: the begin of URLs that are opened, too; NULL: none */
    /* Records that this process has bound to names, for a job's `memory` sources; NULL: none. */
    uint32_t evaluate_records; /* of a worker with a slice of the model, as train_options' */
    const struct bindings *bindings;
    struct remote *remote; /* opens the URLs of a job's data; NULL: none are opened */
    /* Does a node of Paceline listen at that address? Blocks for `patience` ns at most. ERR_PEER
     * with the cause; NULL: addresses are not checked. */
    int (*check_address)(const char *address, int64_t patience, struct err *err);
    /* ns that threads of this process were ready to run and had no processor, until now; NULL: the
     * number of threads stays as it is. */
    int64_t (*delay)(void);
    uint32_t threads; /* threads of a worker; 0: as the job sets them */
    uint32_t cores;   /* that this process may use; threads if the job sets none */
    /* Where a worker's spans go, where it lives in one process and on one clock with its driver;
     * NULL: to the driver. */
    const struct trace_sink *trace;
    const struct work_watch *work;   /* receives a worker's progress; NULL: none */
    const struct train_watch *watch; /* observer of tests; NULL: none */
};

static inline const struct group_observer *train_observer(const struct train_host *host)
{
    return host->watch ? &host->watch->exchanges : NULL;
}

/* The summary of a run, as in its `end` event. */
enum { TRAIN_BAD_NAMED = 3 };

struct train_report {
    const char *reason; /* "epochs", "steps", "seconds", "error", "interrupted" */
    bool has_validation, has_test;
    double validation_error, test_error; /* -1: the net has no error rate */
    double validation_loss, test_loss;
    bool has_train;    /* a training loss: */
    double train_loss; /* mean over the newest second or so of training */
    double epochs;
    uint64_t samples, used, repeated, missed;
    uint64_t batch;            /* of all workers at the end, where they share it out; else 0 */
    double wall_s, session_s;  /* of the run, and since it was last continued with; virtual in a
                                 simulation */
    double data_s;             /* the longest that one worker has waited for its records */
    struct cache_report cache; /* what the caches of all workers keep */
    uint64_t seed;
    const char *strategy;
    uint32_t workers; /* that were in the run when it ended */
    uint64_t parameters;
    bool simulated;
    uint64_t rejected;    /* contributions that did not count */
    uint64_t bad_records; /* bad records of all workers, and the causes of the first ones */
    char bad_record[TRAIN_BAD_NAMED][240];
    bool elsewhere;    /* the model is not in the run directory, which could not take it */
    char model[2112];  /* the path of the newest model of the run; "": there is none */
    size_t model_name; /* where its name in the run directory begins */
};

/* Stages of a stop: requested; requested at once; done. */
enum stopping_stage { STOPPING_SOON, STOPPING_NOW, STOPPING_DONE };

struct train_stopping {
    enum stopping_stage stage;
    double commit_s;    /* until its next commit point; < 0: unknown */
    double state_age_s; /* how old the newest state is that the driver has; < 0: there is none */
    bool requests;      /* a worker is to send a newer one */
    bool initial;       /* it is the model that the run began with: nothing has been exchanged */
    uint64_t exchanges; /* of that state */
    const char *path;   /* STOPPING_DONE: where it is; "": nothing is kept */
};

struct events;
struct train_progress;

/* The run's last event, `end`. */
void train_report_event(const struct events *events, const struct train_report *report);

struct rundir;

struct train_options {
    /* Finished, paths resolved. The driver writes into it the columns that it finds in tables. */
    Paceline__Job *job;
    const struct rundir *dir; /* for models and checkpoints; NULL: none are kept */
    bool resume;              /* resume from the newest checkpoint in `dir`, or from the state of
                                 workers that still run */
    bool simulated;           /* events carry it */
    double before;        /* s of the run until now: its events resume from there; 0: a new one */
    bool force;           /* resume although the job has changed */
    bool *lost_all;       /* set when all workers are lost and the run can be continued with, which
                             has then not ended: it is to be driven again, with `resume`. NULL: the
                             run then ends */
    struct err *why_lost; /* of the previous driver: the reason of its last worker; "": none; set
                             with lost_all; may be NULL */
    bool no_old_workers;  /* no worker of an earlier driver can be there any more */
    uint64_t run;         /* the world's number of this run */
    const char *snapshot; /* resume from a .solverstate of Caffe's instead; NULL: no */
    /* elsewhere: workers may be on other machines, so they receive the net itself instead of a file
     * name. open_threads: the job sets no threads, so each worker chooses them. */
    bool elsewhere, open_threads;
    bool dry;                  /* job, data and net are opened and described, and no more */
    uint32_t evaluate_records; /* the most of each set, from the first; 0: as the job sets it */
    bool open_end;             /* the job sets no end, and the default applies */
    const char *folder;        /* of the job file, with its slash; NULL: none */
    const char *chosen;        /* why the strategy and the workers are these; NULL: the job's own */
    double patience_s; /* seconds to wait for workers without progress; 0: as the job sets it */
    /* Called when job, data and net agree and before any worker is started: the host may make the
     * run directory. An error ends the run. May be NULL. */
    int (*begin)(void *user, struct err *err);
    /* Each event, and how the run stands, from the driver's main task. `progress` may be NULL. */
    void (*line)(void *user, const char *event);
    /* How many workers that it has started have ended? May be NULL. */
    uint32_t (*lost)(void *user);
    void (*progress)(void *user, const struct train_progress *progress);
    void *user;
    /* The sink of a trace; NULL: none. A background task of the driver calls it. */
    const struct trace_sink *trace;
    /* Set by anyone: how many workers there are to be; 0: as many as the job allows; may be NULL */
    const atomic_int *workers;
    bool host_follows; /* the host starts and ends workers by the event want_workers */
    /* Set from any thread: 1, end at the next commit point without another evaluation; 2, end at
     * once and keep the present state. May be NULL. */
    const atomic_int *stop;
    void (*stopping)(void *user, const struct train_stopping *s); /* may be NULL */
    void (*tick)(void *user); /* ten times a second, about, whatever happens; may be NULL */
    /* Fallback locations for the final model while `dir` cannot store it, the best first. May be
     * NULL. */
    const struct rundir_fallback *fallbacks;
};

struct strategy_ops;

/* Does it end the run for all that a worker's loop ended so? Does the error concern all replicas?
 * Trouble of one machine does not: the run continues with the others, or waits for another. */
bool train_ends_the_run(int status);

/* Drive a run from this node until it has ended.
 *
 * ERR_INPUT, ERR_UNSUPPORTED  the job, its data or its net, by name
 * ERR_PEER                    all workers are lost, or too few came
 * ERR_DIVERGED, ERR_REPLICAS  a worker ended with it
 * ERR_NOMEM, ERR_CANCELLED */
int train_drive(struct world *world, const struct train_host *host,
                const struct train_options *options, struct train_report *report, struct err *err);

/* Work for the driver, and for drivers that recover the run, until the run is over or this worker
 * has left. Errors are reported to the driver. ERR_DRIVER: the driver is gone for good, or has
 * excluded this worker, which may rejoin as a new one. ERR_PEER: the driver refuses this worker;
 * ERR_CANCELLED, or the error that ended the worker. */
int train_work(struct world *world, const struct train_host *host);

#endif
