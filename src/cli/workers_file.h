/* A file in which a user says how many workers a run is to have: looked at again and again while
 * the run goes on. */
#ifndef PL_CLI_WORKERS_FILE_H
#define PL_CLI_WORKERS_FILE_H

#include <stdatomic.h>

struct workers_file {
    const char *path;    /* NULL: there is none */
    double looked;       /* when, in the run's seconds */
    atomic_uint workers; /* for pl_run_options.workers */
};

/* For pl_run_options.progress, `t` seconds into the run: once a second the number in the file. A
 * file that is not there, or holds none, changes nothing. */
void workers_file_look(struct workers_file *file, double t);

#endif
