/* Training a job: a driver in this process, workers wherever the host starts them. */
#ifndef PACELINE_RUN_H
#define PACELINE_RUN_H

#include "paceline/flag.h"
#include "paceline/job.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a run stands; given out ten times a second at most, and once a second where nothing moves. */
typedef struct pl_progress {
    double t;             /* seconds since the run began; virtual in a simulation */
    double commit_t;      /* when its newest commit point was reported; 0: there was none */
    double epoch, epochs; /* where it is; where it ends, 0 when epochs do not end it */
    uint64_t steps;       /* of each worker */
    uint32_t workers;     /* in the current view */
    double loss;          /* of the newest exchange's records */
    double error; /* last validation error, or test error without validation; < 0: none yet */
    double samples_per_s; /* over all workers, since the progress before */
    double exchange_s;    /* seconds of the newest exchange; 0: none */
    int slowest;          /* the worker that arrived last at it; -1: none */
    double eta_s;         /* to the end by epochs; < 0: unknown */
    /* Before the first exchange of a synchronous strategy: steps of the slowest worker since the
     * start, with mean loss `loss`; 0: an exchange has completed, or the strategy has none. Then
     * the expected seconds until the first exchange; < 0: unknown. */
    uint64_t local_steps;
    double first_exchange_s;
    bool simulated; /* times are virtual */
} pl_progress;

/* Stages of a requested stop. */
typedef enum pl_stopping_stage {
    PL_STOPPING_SOON, /* it is going to, at its next commit point; */
    PL_STOPPING_NOW,  /* a second request: it stops at once */
    PL_STOPPING_DONE  /* it has stopped at once */
} pl_stopping_stage;

typedef struct pl_stopping {
    pl_stopping_stage stage;
    double commit_s;    /* until its next commit point; < 0: unknown */
    double state_age_s; /* how old the newest state is that the driver has; < 0: there is none */
    bool asks;          /* a worker is to send a newer one */
    bool initial;       /* it is the model that the run began with: nothing has been exchanged */
    uint64_t exchanges; /* of that state */
    const char *path;   /* PL_STOPPING_DONE: where it is; "": nothing is kept */
} pl_stopping;

typedef struct pl_run_options {
    size_t size; /* sizeof this struct */
    /* Where the run directory is to be: a path that is empty or does not exist; with `resume` that
     * of the run to continue with. NULL: the next free (with `resume`: the newest)
     * runs/NAME-NNN. */
    const char *out;
    /* Continue the run of the directory: from the state of workers that still wait for their
     * driver, or else from the newest checkpoint. */
    bool resume;
    /* With `resume`: the log names each field in which `job` differs from the directory's own; a
     * field that changes what the run is (pl_job_change.breaks) is refused unless this is set, and
     * so is continuing a simulated run as a real one (pl_sim: a real run as a simulated one). */
    bool force_change;
    /* With `resume`: take the run from a driver that lives, which then ends; once all has been
     * opened, so that a run that is refused stays its own. Else such a run is refused. */
    bool take_over;
    /* Check alone: job, data and net are opened, `start` and the warnings are given to `event`, and
     * the run ends, with reason "checked", before it makes its directory or starts a worker. */
    bool dry_run;
    /* Continue from a .solverstate of a run of Caffe: from the weights that it names, its optimizer
     * state and its step. For one worker. NULL: none. */
    const char *snapshot;
    /* Why the run has its strategy and workers, for the event `start`. NULL: the job sets them. */
    const char *chosen;
    /* Called once when the run directory exists, before the first event. May be NULL. */
    void (*begins)(void *user, const char *directory);
    /* Each event of the run as a line of JSON, when it happens: the lines of events.jsonl. The
     * first, `start`, describes the run: net, parameters, classes, records of each set, batch and
     * nodes, steps an epoch, strategy and its settings, optimizer and rate, end of the run. The
     * `text` of a `warning` names a setting that is allowed but rarely intended, and the
     * alternative. May be NULL. */
    void (*event)(void *user, const char *line);
    void (*progress)(void *user, const pl_progress *progress);
    void *user;
    /* A new file for a trace of the run: how each node spent its time, as Chrome's trace events,
     * for Perfetto (ui.perfetto.dev) or chrome://tracing. A process for each node, with spans of
     * `compute`, `update`, `copy`, `exchange`, `wait`, `send`, `evaluate` and `data` (a batch came
     * late). Times are virtual in a simulation, which the trace does not change; in a real run each
     * node counts from its first view, and clocks of hosts are not compared. Spans that a killed
     * worker has not yet sent are missing. NULL: none. */
    const char *trace;
    /* Set it, from any thread or a signal handler. 1: the run ends at its next commit point, with a
     * final model that is not evaluated. 2: it ends at once, and the driver writes its own state,
     * or that of a worker that sends it within two seconds, as a checkpoint to resume from. While
     * the final model waits for room in the run directory a higher number than before ends that
     * wait. May be NULL. */
    const pl_flag *stop;
    /* Reports the effect of a stop request; called by the run's thread, at once. May be NULL. */
    void (*stopping)(void *user, const pl_stopping *stopping);
    /* Called by the run's thread about ten times a second, whatever happens, also while workers are
     * waited for. May be NULL. */
    void (*tick)(void *user);
    /* Set it, from any thread, to change the number of workers while the run continues, between the
     * job's workers_min and workers_max. For more, the driver admits waiting workers or requests
     * new ones (start_workers). For fewer, the newest workers leave in good order, and wait if they
     * run pl_work. 0: as many as the job allows, or as its follow_batch says. May be NULL. */
    const pl_flag *workers;
    /* The host itself starts and ends workers as follow_batch says, by the event `want_workers`; it
     * begins with workers_min. Else the driver requests and releases them. Not used by pl_sim. */
    bool follows_batch;
    /* pl_run: start `count` workers, each of which must call pl_work with `address`; also to
     * replace lost workers, if the job has workers_min and workers_max. The run has threads then:
     * start a program (posix_spawn), because a process that is only forked may wait for ever for a
     * lock that one of them held. NULL: workers are started elsewhere. They receive the net, need
     * only the files of data, and use the threads of their own machine if the job sets no number.
     * Not used by pl_sim. */
    int (*start_workers)(void *user, uint32_t count, const char *address);
    /* The number of started workers that have ended. The thread that calls start_workers calls it
     * while the run waits for workers: the run ends at once when the remaining ones are too few to
     * begin, instead of waiting. A host that can count lost workers has started all of them: with
     * `resume`, the driver does not wait for workers of an earlier driver. May be NULL. */
    uint32_t (*workers_lost)(void *user);
    /* Without start_workers: the address at which the driver listens for workers that are started
     * elsewhere. Called once, before it waits for them. May be NULL. */
    void (*listens)(void *user, const char *address);
    /* Seconds to wait for workers while none arrives or opens its data, up to 1e9; 0: the job's
     * patience_seconds. */
    double patience_s;
    /* Where the driver listens, "host:port"; NULL: 127.0.0.1 and `port`, or, where another process
     * has that port, one that is free, which is logged. 0: one that is free. */
    const char *listen;
    unsigned short port;
    bool insecure; /* do not encrypt what is sent to workers that say so, too; the log says so each
                      minute */
    /* The run's key (paceline/key.h): every worker must prove that it has it, and the driver proves
     * it to them. Copied. NULL: at loopback the user's own (pl_key_own); beyond it the run is
     * refused. */
    const char *key;
    /* The limit of the driver's traffic in each direction, in Mbit/s; 0: no limit. Control messages
     * of the group are sent at once, and count towards the limit. */
    double max_mbit;
} pl_run_options;

typedef struct pl_run_report {
    char reason[16]; /* epochs, steps, seconds, error, converged, interrupted */
    bool has_validation, has_test;
    double validation_error, test_error; /* -1: the net has no error rate */
    double validation_loss, test_loss;
    double epochs;
    uint64_t samples, used, repeated, missed; /* with local_data repeated and missed are counted by
                                                 the sets of records that workers have */
    bool has_train;                           /* was there a training loss? */
    double train_loss; /* the mean over the newest second or so of training */
    double wall_s;     /* of the whole run, without the time between its sessions; virtual in a
                          simulation */
    double session_s;  /* since it was begun, or last continued with; `samples` are of this time */
    uint64_t seed;
    char strategy[32];
    uint32_t workers; /* that were in the run at its end */
    uint64_t parameters;
    bool simulated;
    char net[64];         /* its name */
    char directory[2048]; /* the run directory */
    /* The newest model of the run: DIRECTORY/final.safetensors; of a run that was stopped at once a
     * checkpoint, or "". `model_elsewhere`: the directory could not take it, and it is in the first
     * of $TMPDIR, /tmp and the working directory that had room. */
    char model[2112];
    bool model_elsewhere;
    /* Records that the caches of all workers kept (the job's `cache`), as each reported last. */
    bool has_cache;
    uint64_t cached, cached_bytes, cached_disk, cached_disk_bytes; /* in memory; in files */
    uint64_t bad_records;    /* left out by `on_bad_record: skip`, each counted once; */
    char bad_record[3][240]; /* causes of the first of them, by name */
    /* Samples of a step of all workers at the end, where the workers share a batch out (the job's
     * `global_batch` and `batch_growth`); else 0. */
    uint64_t batch;
    uint64_t reserved[8]; /* room for further fields; 0 */
} pl_run_report;

/* Drive a run; returns when it has ended.
 * PL_ERR_INPUT, PL_ERR_USAGE, PL_ERR_UNSUPPORTED, PL_ERR_PEER (all workers lost), PL_ERR_DIVERGED,
 * PL_ERR_IO, PL_ERR_FULL (no room on disk, not even for the final model), PL_ERR_NOMEM */
int pl_run(pl_engine *engine, const pl_job *job, const pl_run_options *options,
           pl_run_report *report);

typedef enum pl_work_stage {
    PL_WORK_JOINED,   /* it is a member of the run, and begins to train */
    PL_WORK_TRAINING, /* it trains; given out four times a second at most */
    PL_WORK_LEFT,     /* it has left the run, which continues without it */
    PL_WORK_OVER,     /* the run is over */
} pl_work_stage;

/* How a worker does. */
typedef struct pl_work_progress {
    pl_work_stage stage;
    const char *run;            /* the job's name; valid during the call, as all texts here */
    const char *driver;         /* the driver's address, as the options have it */
    uint32_t worker, workers;   /* the number that the driver gave it; how many are in the run */
    unsigned long long steps;   /* that it has taken since it joined */
    double loss, samples_per_s; /* of this worker, since the call before; NaN and 0: not known */
    const char *reason;         /* PL_WORK_OVER: as pl_run_report's; "": unknown */
} pl_work_progress;

typedef struct pl_work_options {
    size_t size; /* sizeof this struct */
    /* Called by the worker's own thread, which it holds up meanwhile. May be NULL. */
    void (*progress)(void *user, const pl_work_progress *progress);
    void *user;
    const char *driver; /* its address; or several, with commas between: where it may return */
    const char *listen; /* where other workers reach this one; NULL: 127.0.0.1 and any port */
    bool insecure;      /* do not encrypt what is sent, where the other side says so, too */
    const char *key;    /* the run's key, as the driver's */
    /* The address that others connect to in order to reach `listen`, where a port is forwarded or a
     * proxy stands in front; NULL: `listen` itself. */
    const char *advertise;
    /* The folder that holds the data here: nothing outside of it is opened for reading, whatever
     * the job, lists of pictures and links name, and no URL but those of `data_urls`; the job's
     * relative paths of data begin there. NULL: for a driver at loopback any path and URL that the
     * job names; for any other driver, the working directory. */
    const char *data_root;
    /* Where there is a data root: URLs that begin with this text, which ends with a slash, are
     * opened all the same, and what they redirect to. NULL: none. */
    const char *data_urls;
    double max_mbit;  /* as the driver's */
    unsigned threads; /* compute threads; 0: as the job sets them, or one a core */
    /* Seconds for which a worker tries each of these; 0: it ends at once. A worker that finds no
     * driver tries again. A worker whose driver is lost keeps its state, trains on as far as the
     * strategy needs no driver, and reconnects when the driver returns. A worker that its driver
     * considers lost joins again as a new one, without the training since its last exchange. */
    double retry_s;
    /* Set it, from any thread or a signal handler, to leave the run in good order: within two
     * exchanges, with nothing lost. The only worker of a run stays. 2: the same, but a driver that
     * is lost is not waited for. May be NULL. */
    const pl_flag *leave;
    /* While it is set, this worker pauses: it leaves the run in good order, returns its leases and
     * waits. When it is cleared, the worker joins the run again as a new one. May be NULL. */
    const pl_flag *pause;
    /* Niceness of threads that compute or read data, 0 to 19. Threads that send heartbeats and the
     * calling thread keep theirs. */
    int nice;
    /* Called by the calling thread a few times a second while this worker is in no run: it connects
     * to a driver, or pauses. May be NULL. */
    void (*tick)(void *user);
    /* Where a job with `cache: disk` has a file of records, without a name, while this worker is in
     * the run; NULL: /var/tmp. */
    const char *cache_directory;
    /* All workers of the run are on this machine: a memory_budget that is a share, as "50%", counts
     * for all of them together, and each takes the same part of it. */
    bool one_machine;
    /* The run's directory, where this machine has it, too: on shared storage, for instance. If the
     * driver is lost and does not return within retry_s, or before this worker leaves (`leave` 2),
     * its workers leave files there from which the next driver resumes: of a synchronous strategy
     * the first one a checkpoint, else each a report, and one the model. NULL: no; then the run
     * resumes from the driver's last checkpoint. */
    const char *run_directory;
} pl_work_options;

/* Work for a driver. Returns when the run is over, or this worker has left it. PL_ERR_PEER (the
 * driver is gone or refuses), PL_ERR_INPUT, PL_ERR_NOMEM */
int pl_work(pl_engine *engine, const pl_work_options *options);

#ifdef __cplusplus
}
#endif
#endif
