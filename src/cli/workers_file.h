/* A file in which a user sets the run's number of workers; read repeatedly while the run
 * continues. */
#ifndef PL_CLI_WORKERS_FILE_H
#define PL_CLI_WORKERS_FILE_H

#include "paceline/flag.h"

#include <time.h>

struct workers_file {
    const char *path; /* NULL: there is none */
    time_t looked;    /* when */
    pl_flag workers;  /* for pl_run_options.workers */
};

/* For pl_run_options.tick: once a second the number in the file. A
 * file that is not there, or holds none, changes nothing. */
void workers_file_look(struct workers_file *file);

#endif
