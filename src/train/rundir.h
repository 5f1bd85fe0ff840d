/* A run's directory: the resolved job, the events, and the models. */
#ifndef PL_TRAIN_RUNDIR_H
#define PL_TRAIN_RUNDIR_H

#include "base/err.h"
#include "job/job.pb-c.h"
#include "train/event_log.h"

enum { RUNDIR_PATH_MAX = 2048 };

struct rundir {
    struct disk *disk;
    char path[RUNDIR_PATH_MAX];
    const char *folder;      /* of the job file, with its slash (borrowed); NULL: none */
    bool open_threads;       /* the number of threads is open, in job.prototxt, too */
    struct disk_file *lock;  /* driver.lock, which this driver holds; NULL: not locked */
    struct event_log events; /* events.jsonl, growing */
};

/* A folder elsewhere, for the final model where the directory cannot take it. */
struct rundir_fallback {
    const char *folder; /* NULL: the end of a list */
    bool in_memory;     /* its files do not survive a power-off */
};

/* Create the directory `path` for a new run (it must be empty or not exist); NULL: the first free
 * of runs/NAME-001, … in the working directory. Several processes at the same moment get different
 * directories, or are refused. Only the directory and its lock are written. ERR_USAGE: it is not
 * empty, another driver has it, or it cannot be a directory; ERR_IO, ERR_NOMEM */
int rundir_create(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                  struct err *err);

/* The directory of a run to continue with: `path`, or the newest of runs/NAME-NNN. ERR_NOT_FOUND,
 * ERR_IO */
int rundir_find(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                struct err *err);

/* Lock an existing run until rundir_close. take_over: also when its driver lives. *taken_from, of
 * 256 bytes: the former holder; "": none. ERR_USAGE: its driver lives, or may live; the message
 * names it and its machine; ERR_IO, ERR_NOMEM */
int rundir_lock(struct rundir *dir, bool take_over, char *taken_from, struct err *err);

/* A sign of life of this driver, about once a second. */
void rundir_beat(const struct rundir *dir);

/* Set its path. ERR_USAGE: invalid path */
int rundir_set_path(struct rundir *dir, const char *path, struct err *err);

/* The job as the directory has it: a copy with whole paths, and without threads where they are
 * open. Freed with job_free. ERR_IO, ERR_NOMEM; ERR_INPUT: a path is too long */
int rundir_whole_job(const struct rundir *dir, const Paceline__Job *job, Paceline__Job **out,
                     struct err *err);

/* Read the directory's job.prototxt, as it was written; and into `folder` (of RUNDIR_PATH_MAX) the
 * folder of the job file that it was made from, with its slash; "": it had none.
 * ERR_NOT_FOUND: there is no run; ERR_INPUT, ERR_NOMEM */
int rundir_read_job(const struct rundir *dir, Paceline__Job **out, char *folder, struct err *err);

/* Write job.prototxt. An existing, different one is kept as job.1.prototxt, job.2.prototxt, …
 * ERR_IO, ERR_NOMEM; ERR_INPUT: a path is too long */
int rundir_put_job(const struct rundir *dir, const Paceline__Job *job, struct err *err);

/* The same, and open events.jsonl. */
int rundir_open(struct rundir *dir, const Paceline__Job *job, struct err *err);

/* Close the events and give up the lock. */
void rundir_close(struct rundir *dir);

/* "PATH/name" into out (RUNDIR_PATH_MAX + 64). */
void rundir_file(const struct rundir *dir, const char *name, char *out, size_t size);

#endif
