/* Training a job: a driver in this process, workers wherever the host starts them. */
#ifndef PACELINE_RUN_H
#define PACELINE_RUN_H

#include "paceline/job.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a run stands; given out about ten times a second at most. */
typedef struct pl_progress {
    double t;             /* seconds since the run began; virtual in a simulation */
    double epoch, epochs; /* where it is; where it ends, 0 when epochs do not end it */
    uint64_t steps;       /* of each worker */
    uint32_t workers;     /* in the current view */
    double loss;          /* of the newest exchange's records */
    double error;         /* last validation error (test error without validation); < 0: none yet */
    double samples_per_s; /* over all workers, since the progress before */
    double exchange_s;    /* what the newest exchange took; 0: there was none */
    int slowest;          /* the worker that came to it last; -1: there was none */
    double eta_s;         /* to the end by epochs; < 0: unknown */
} pl_progress;

typedef struct pl_run_options {
    /* Where the run directory is to be: a path that is empty or does not exist; with `resume` that
     * of the run to go on with. NULL: the next free (with `resume`: the newest) runs/NAME-NNN. */
    const char *out;
    /* Go on with the run of the directory: from what workers have that are still there and wait for
     * their driver, or else from the newest checkpoint. */
    bool resume;
    /* Go on from what a run of Caffe left, a .solverstate, which names its weights: those, the
     * optimizer's state and the step. For one worker. NULL: none. */
    const char *snapshot;
    /* Each event of the run as a line of JSON, as it happens: the lines of events.jsonl. */
    void (*event)(void *user, const char *line);
    void (*progress)(void *user, const pl_progress *progress);
    void *user;
    /* A new file for a trace of the run: where each node's time went, as Chrome's trace events, for
     * Perfetto (ui.perfetto.dev) or chrome://tracing. A process for each node, with spans of
     * `compute`, `update`, `copy`, `exchange`, `wait`, `send` and `evaluate`. Times are virtual in
     * a simulation, which the trace does not change; else each node counts from the moment at which
     * it had the first list of members, and clocks of hosts are not compared. What a worker that is
     * killed has not yet sent is missing. NULL: none. */
    const char *trace;
    /* Set it, from any thread or a signal handler, to end the run cleanly at its next commit
     * point. May be NULL. */
    const atomic_bool *stop;
    /* Set it, from any thread, to change how many workers there are while the run goes on, between
     * the job's workers_min and workers_max: more are taken from those that stand by, or asked for
     * (start_workers); of fewer the latest to come leave in good order, and stand by where they are
     * pl_work's. 0: as many as the job allows. May be NULL. */
    const atomic_uint *workers;
    /* pl_run: start `count` workers, each of which must call pl_work with `address`; once more to
     * replace those that are lost, where the job says from how many to how many there may be. NULL:
     * workers are started by somebody else, wherever that is: they are given the net itself, need
     * no file but those of data, and use the threads of their own machine where the job names no
     * number. Not used by pl_sim. */
    int (*start_workers)(void *user, uint32_t count, const char *address);
    /* Has one of those ended? Asked while they are waited for, by the thread that calls
     * start_workers: a run ends at once that would wait a minute for it. Who can tell has them all
     * at hand: with `resume`, those of an earlier driver are not waited for. May be NULL. */
    bool (*workers_lost)(void *user);
    /* Without start_workers: the driver listens at `address`, where those that somebody else starts
     * are to join it. Called once, before it waits for them. May be NULL. */
    void (*listens)(void *user, const char *address);
    double patience_s; /* how long to wait for workers while none stirs; 0: a minute */
    /* Where the driver listens, "host:port"; NULL: 127.0.0.1 and any port. */
    const char *listen;
    bool insecure; /* allow an address beyond loopback although nothing is authenticated yet */
    /* What the driver sends, and what it is sent, is held to so many Mbit/s each way; 0: no limit.
     * What keeps the group together goes at once, and is counted. */
    double max_mbit;
} pl_run_options;

typedef struct pl_run_report {
    char reason[16]; /* epochs, steps, seconds, error, interrupted */
    bool has_validation, has_test;
    double validation_error, test_error; /* -1: the net has no error rate */
    double validation_loss, test_loss;
    double epochs;
    uint64_t samples, used, repeated, missed;
    double wall_s;
    uint64_t seed;
    char directory[2048]; /* the run directory */
} pl_run_report;

/* Drive a run; returns when it has ended.
 * PL_ERR_INPUT, PL_ERR_USAGE, PL_ERR_UNSUPPORTED, PL_ERR_PEER (all workers lost), PL_ERR_DIVERGED,
 * PL_ERR_IO, PL_ERR_NOMEM */
int pl_run(pl_engine *engine, const pl_job *job, const pl_run_options *options,
           pl_run_report *report);

typedef struct pl_work_options {
    const char *driver; /* its address; or several, with commas between: where it may come back */
    const char *listen; /* where other workers reach this one; NULL: 127.0.0.1 and any port */
    bool insecure;
    /* What others connect to to reach `listen`, where a port is forwarded, or a proxy stands before
     * it; NULL: `listen` itself. */
    const char *advertise;
    /* The folder that holds the data here: nothing outside of it is opened for reading, whatever
     * the job, lists of pictures and links say, and paths of data that the job names relative to
     * itself are taken from there. NULL: for a driver at loopback, whatever the job names; for any
     * other, the working directory. */
    const char *data_root;
    double max_mbit;  /* as the driver's */
    unsigned threads; /* that compute here; 0: as the job says, or else one a core */
    /* A worker that finds no driver yet tries again. One whose driver is gone keeps what it has,
     * trains on as far as the strategy needs no driver, and calls it until it has come back. One
     * that its driver holds to be lost comes again, as a new one: what it had learnt since the last
     * exchange is gone. So long it tries each of these, seconds; 0: it does not, and ends. */
    double retry_s;
    /* Set it, from any thread or a signal handler, to leave the run in good order: within two
     * exchanges, with nothing lost. Whoever is alone in a run stays. May be NULL. */
    const atomic_bool *leave;
    /* While it is set, this worker stands aside: it leaves the run in good order, gives back what
     * it holds and waits; when it is not any more, it joins the run again, as a new one. May be
     * NULL.
     */
    const atomic_bool *pause;
    /* Niceness of threads that compute or read data, 0 to 19. Those that say that this worker lives
     * stay as they are, and so does the calling thread. */
    int nice;
} pl_work_options;

/* Work for a driver; returns when its run is over, or has been left.
 * PL_ERR_PEER (the driver is gone or refuses), PL_ERR_INPUT, PL_ERR_NOMEM */
int pl_work(pl_engine *engine, const pl_work_options *options);

#ifdef __cplusplus
}
#endif
#endif
