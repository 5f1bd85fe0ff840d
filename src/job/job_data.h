/* The data of a job: whether its fields can be honoured, and where its files are. Internal to job,
 * but for job_check_data and job_set_data, which job.h declares. */
#ifndef PL_JOB_JOB_DATA_H
#define PL_JOB_JOB_DATA_H

#include "base/err.h"
#include "job/job.pb-c.h"

/* Make a relative path relative to the folder of `job_path`; `field` is for messages. ERR_INPUT:
 * too long; ERR_NOMEM */
int job_resolve(char **path, const char *job_path, const char *field, struct err *err);

/* Likewise each path of a list with commas between; those within `folder` (NULL, or with a slash at
 * its end) lose it before. */
int job_resolve_list(char **list, const char *folder, const char *job_path, const char *field,
                     struct err *err);

/* Likewise all paths of `data` (NULL: none). */
int job_data_resolve(Paceline__Data *data, const char *folder, const char *job_path,
                     const char *field, struct err *err);

#endif
