/* A run's directory: the resolved job, the events, the models it leaves behind. */
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
    bool open_threads;       /* nobody has said how many: job.prototxt does not either */
    struct disk_file *lock;  /* driver.lock: the run is this driver's; NULL: nobody asked */
    struct event_log events; /* events.jsonl, growing */
};

/* A folder elsewhere, for the final model where the directory cannot take it. */
struct rundir_fallback {
    const char *folder; /* NULL: the end of a list */
    bool in_memory;     /* what is there is gone once the machine is switched off */
};

/* Take `path` for a new run (it must be empty or not exist yet); NULL: the first free of
 * runs/NAME-001, … in the working directory. Of several who do so at the same moment each gets
 * another directory, or is refused. Nothing is written yet but the directory and its lock.
 * ERR_USAGE  it holds something, another driver has it, or there can be no directory
 * ERR_IO, ERR_NOMEM */
int rundir_create(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                  struct err *err);

/* The directory of a run to continue with: `path`, or the newest of runs/NAME-NNN. ERR_NOT_FOUND,
 * ERR_IO */
int rundir_find(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                struct err *err);

/* Take the lock of a run that was found, until rundir_close. take_over: of a driver that lives,
 * too. *taken_from, of 256 bytes: who lost it; "": nobody. ERR_USAGE: its driver lives, or may
 * live, with who and where that is; ERR_IO, ERR_NOMEM */
int rundir_lock(struct rundir *dir, bool take_over, char *taken_from, struct err *err);

/* A sign of life of this driver, about once a second. */
void rundir_beat(const struct rundir *dir);

/* Say where it is. ERR_USAGE: it is no path */
int rundir_set_path(struct rundir *dir, const char *path, struct err *err);

/* The job as the directory has it: a copy with whole paths, and without threads where they are
 * open. Freed with job_free. ERR_IO, ERR_NOMEM; ERR_INPUT: a path is too long */
int rundir_whole_job(const struct rundir *dir, const Paceline__Job *job, Paceline__Job **out,
                     struct err *err);

/* Read the directory's job.prototxt, as it was written; and into `folder` (of RUNDIR_PATH_MAX) the
 * folder of the job file that it was made from, with its slash; "": it had none.
 * ERR_NOT_FOUND: there is no run; ERR_INPUT, ERR_NOMEM */
int rundir_read_job(const struct rundir *dir, Paceline__Job **out, char *folder, struct err *err);

/* Write job.prototxt. One that says something else is kept as job.1.prototxt, job.2.prototxt, …
 * ERR_IO, ERR_NOMEM; ERR_INPUT: a path is too long */
int rundir_put_job(const struct rundir *dir, const Paceline__Job *job, struct err *err);

/* The same, and open events.jsonl. */
int rundir_open(struct rundir *dir, const Paceline__Job *job, struct err *err);

/* Close the events and give up the lock. */
void rundir_close(struct rundir *dir);

/* "PATH/name" into out (RUNDIR_PATH_MAX + 64). */
void rundir_file(const struct rundir *dir, const char *name, char *out, size_t size);

#endif
