/* A run's directory: the resolved job, the events, the models it leaves behind. */
#ifndef PL_TRAIN_RUNDIR_H
#define PL_TRAIN_RUNDIR_H

#include "base/err.h"
#include "job/job.pb-c.h"
#include "world/disk.h"

enum { RUNDIR_PATH_MAX = 2048 };

struct rundir {
    struct disk *disk;
    char path[RUNDIR_PATH_MAX];
    struct disk_file *events; /* events.jsonl, growing */
    struct err error;         /* of the first line that could not be written */
};

/* Take `path` for a new run (it must be empty or not exist yet); NULL: the first free of
 * runs/NAME-001, … in the working directory. Nothing is written yet but the directory.
 * ERR_USAGE  it holds something, or there can be no directory
 * ERR_IO, ERR_NOMEM */
int rundir_create(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                  struct err *err);

/* The directory of a run to go on with: `path`, or the newest of runs/NAME-NNN. ERR_NOT_FOUND,
 * ERR_IO */
int rundir_find(struct rundir *dir, struct disk *disk, const char *path, const char *name,
                struct err *err);

/* Write job.prototxt, its paths made absolute from the working directory, and open events.jsonl.
 * ERR_IO, ERR_NOMEM; ERR_INPUT: a path is too long */
int rundir_open(struct rundir *dir, const Paceline__Job *job, struct err *err);

/* Append a line to events.jsonl. An error is kept in dir->error: a run goes on without its log. */
void rundir_line(struct rundir *dir, const char *line);
void rundir_close(struct rundir *dir);

/* "PATH/name" into out (RUNDIR_PATH_MAX + 64). */
void rundir_file(const struct rundir *dir, const char *name, char *out, size_t size);

#endif
