/* The fields of a run's job.prototxt as paths and values, to find those that differ between
 * runs. */
#ifndef PL_CLI_JOB_FIELDS_H
#define PL_CLI_JOB_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

struct job_field {
    char *path;  /* "solver.base_lr"; the second of a repeated one "net.layer[1].name" */
    char *value; /* as in the file */
};

struct job_fields {
    char *text; /* the whole file */
    struct job_field *field;
    size_t count, room;
};

enum { JOB_TEXT_MAX = 4 << 20, JOB_DEPTH_MAX = 32, JOB_FIELDS_MAX = 2000 };

/* A file as the library writes it: a field a line. Lines of another form, and those after
 * JOB_FIELDS_MAX, are left out. false: there is no such file, it is above JOB_TEXT_MAX, or memory
 * ran out; *fields is then empty. */
bool job_fields_read(const char *path, struct job_fields *fields);

/* NULL: the job has no such field. */
const char *job_fields_find(const struct job_fields *fields, const char *path);

void job_fields_release(struct job_fields *fields);

#endif
