/* Files that the workers of an asynchronous run leave in its directory when no driver returns: each
 * writes its recovery report, and the one with the newest global model that model.
 *
 *   recovery/INCARNATION-NODE              the report
 *   recovery/INCARNATION-NODE.safetensors  that worker's model, as a checkpoint (checkpoint.h)
 *
 * INCARNATION is of the driver that was given up. The next driver resumes from these files if they
 * are further than the newest checkpoint (driver_last_reports.c), and removes them with its first
 * checkpoint. */
#ifndef PL_TRAIN_LAST_REPORT_H
#define PL_TRAIN_LAST_REPORT_H

#include "train/recovery_report.h"
#include "train/rundir.h"

struct last_report {
    uint32_t incarnation, node;
    uint32_t view; /* the worker's newest, */
    struct members members;
    uint64_t step_samples;         /* of a step of all workers */
    bool has_model;                /* it has a global model, */
    uint64_t version;              /* and a later one has a higher number (ops->last_model) */
    uint64_t report[GROUP_REPORT]; /* recovery_report_write */
};

/* Write it durably; the folder is made. ERR_IO, ERR_FULL, ERR_NOMEM */
int last_report_write(const struct rundir *dir, const struct last_report *report, struct err *err);

/* The path of that worker's model, into out (RUNDIR_PATH_MAX + 64). */
void last_report_model_path(const struct rundir *dir, const struct last_report *report, char *out,
                            size_t size);

/* The reports of one driver's workers that were members at its end. */
struct last_reports {
    uint32_t incarnation;
    uint32_t view; /* the newest of any report, */
    struct members members;
    struct members here;    /* those that left a report */
    struct last_report *at; /* in the order of `here`; owned */
    size_t count;
};

/* Read those of the newest driver, of which count may be 0; a line in the log names each file that
 * is damaged. ERR_NOMEM */
int last_reports_read(const struct rundir *dir, const struct logger *log, struct last_reports *out,
                      struct err *err);
void last_reports_release(struct last_reports *reports);

/* The report of another one whose model is to be written rather than this worker's; NULL: none. */
const struct last_report *last_reports_later(const struct last_reports *reports,
                                             const struct last_report *own);

/* Remove the files of drivers before that incarnation. One that cannot be removed does no harm. */
void last_reports_remove(const struct rundir *dir, uint32_t before);

#endif
