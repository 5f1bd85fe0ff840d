/* Declarations that the implementations of the public headers share. */
#ifndef PL_API_API_H
#define PL_API_API_H

#include "api/trace_file.h"
#include "api/tuning.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/logger.h"
#include "data/bindings.h"
#include "job/cluster.h"
#include "job/job.h"
#include "job/job_solver.h"
#include "paceline/flag.h"
#include "paceline/sim.h"
#include "train/rundir.h"
#include "train/train.h"

#include <stdatomic.h>

/* The same flag in the type that the lower layers use. NULL gives NULL. */
const atomic_int *api_flag(const pl_flag *flag);

struct pl_engine {
    struct logger log;
    struct err error;           /* of the last call that failed */
    struct err bug;             /* status ERR_BUG: the engine is poisoned (guard.h) */
    struct api_source *sources; /* data that is open, for its nets (net.h) */
    struct bindings bindings;   /* of the caller's records */
    struct remote *remote;      /* reads URLs; owned */
    struct api_tuning *tuning;  /* once a net has asked for it */
};

struct pl_job {
    pl_engine *engine;
    Paceline__Job *message;         /* as read and overridden, not yet finished */
    char *folder;                   /* of its file, with its slash; owned, may be NULL */
    struct job_solver_wants *wants; /* owned; NULL where it was not a solver of Caffe's */
};

/* A finished copy of the job, checked, with `threads` set if the job leaves it open: the cores of
 * this machine divided by `workers_here`, or by all of the job's workers if that is 0. Freed with
 * job_free. ERR_INPUT, ERR_NOMEM */
int api_job_finish(const pl_job *job, uint32_t workers_here, Paceline__Job **out);

/* A copy to change, freed with pl_job_free. ERR_NOMEM */
int api_job_copy(const pl_job *job, pl_job **out);

/* Does the job not state when its run ends? */
bool api_job_is_open_ended(const pl_job *job);

enum { API_PLACES = 3 };

/* Receives the events of a run that measures, besides the caller. */
struct api_observer {
    void (*event)(void *user, const char *line);
    void *user;
};

/* Where a run's events, progress and trace go: to its directory, to the caller, to a file. */
struct api_sink {
    struct rundir dir;
    const pl_job *given; /* what `job` was made from */
    Paceline__Job *job;
    const pl_run_options *options;
    struct buf early; /* lines from before the directory existed */
    const struct logger *log;
    char place_path[API_PLACES][RUNDIR_PATH_MAX];
    struct rundir_fallback places[API_PLACES + 1];
    bool behind;     /* some lines of the log are not written yet */
    bool takes_over; /* the run's driver lives, and loses it when this one begins */
    bool simulated;
    bool no_files;                       /* set before it is opened: there is no directory */
    const struct api_observer *observer; /* likewise; NULL: none */
    char name[208];                      /* of run directories that are numbered */
    struct trace_file trace;
    struct trace_sink spans; /* where the caller wants a trace: `trace`, once the run has begun */
};

/* Make `train` write to the sink, and find the directory of the run to continue. A new directory
 * with its job and trace is made when the driver begins: an earlier failure leaves no files. `log`
 * is borrowed. */
int api_sink_open(struct api_sink *sink, const pl_job *given, const pl_run_options *options,
                  struct train_options *train, const struct logger *log, struct err *err);
void api_sink_close(struct api_sink *sink);

/* The job that is to continue is the directory's own, from which it takes the columns of tables.
 * The log names each difference; a change of what the run is is refused, unless it is forced.
 * ERR_USAGE naming the field; ERR_INPUT: the directory's job cannot be read; ERR_NOMEM */
int api_check_job(const struct rundir *dir, Paceline__Job *job, bool force,
                  const struct logger *log, struct err *err);

/* The finished message of a cluster file. */
const Paceline__Cluster *api_cluster(const pl_cluster *cluster);

/* The cluster with this text, which is copied; errors name `name`. ERR_INPUT, ERR_NOMEM */
int api_cluster_make(const char *name, const char *text, size_t len, pl_cluster **out,
                     struct err *err);

/* pl_run, without its guard, with options of this library's size. With an observer the run is no
 * training: it keeps no files, evaluates on one record, and ends when all workers are lost. */
int api_run(pl_engine *engine, const pl_job *job, const pl_run_options *options,
            const struct api_observer *observer, pl_run_report *report);

/* pl_sim, without its guard, on a finished message of a cluster file, with options of this
 * library's size. */
int api_simulate(pl_engine *engine, const pl_job *job, const Paceline__Cluster *cluster,
                 const pl_sim_options *options, pl_run_report *report);

/* Reports the end of the run to the caller. */
void api_report(const struct api_sink *sink, const struct train_report *from, pl_run_report *to);

#endif
