/* The files of checkpoint/ in a run directory: their names, and which are removed. A driver removes
 * its own files and those of earlier drivers, but never those of a later driver: this process may
 * have been stopped between two instructions while another took the run over. */
#ifndef PL_TRAIN_CHECKPOINT_FILES_H
#define PL_TRAIN_CHECKPOINT_FILES_H

#include "train/rundir.h"

#define CHECKPOINT_FORMAT "paceline 1" /* "format" of the metadata */

/* The tensors of the carried state. */
#define CHECKPOINT_CARRIED_STATE  "carried/state"
#define CHECKPOINT_CARRIED_RECORD "carried/record"

/* Numbers of the existing checkpoints, ascending. */
struct checkpoint_numbers {
    const char *end; /* of their names */
    uint64_t *at;    /* owned: free it */
    size_t count, cap;
    bool failed;
};

/* ERR_NOT_FOUND: there is no such folder; ERR_IO, ERR_NOMEM */
int checkpoint_files_list(const struct rundir *dir, struct checkpoint_numbers *numbers,
                          struct err *err);

/* Removes files that a crash left half written, which would take room for ever. */
void checkpoint_files_remove_unfinished(const struct rundir *dir);

/* Once checkpoint n is written by the driver of this incarnation: remove those above it, and of
 * those up to it all but the newest `keep`. ERR_FENCED: one above it is a later driver's; ERR_IO,
 * ERR_NOMEM */
int checkpoint_files_remove_others(const struct rundir *dir, uint64_t n, uint32_t keep,
                                   uint32_t incarnation, struct err *err);

#endif
