/* Checkpoints (D11): what a run needs to go on, as safetensors, data only.
 *
 * Tensors are joint/SEGMENT, s/SEGMENT and, where all workers have it in common or there is but
 * one, the optimizer's state by its own name (momentum/SEGMENT); and a strategy's own
 * (outer_momentum/SEGMENT). The metadata holds the course, the
 * book of records, seed and driver's incarnation. Every byte is under a checksum. */
#ifndef PL_TRAIN_CHECKPOINT_H
#define PL_TRAIN_CHECKPOINT_H

#include "optim/optim.h"
#include "strategy/strategy.h"
#include "train/rundir.h"

/* A model laid out as it travels: x, then s, then each vector of optimizer state, then those of the
 * strategy's own. */
struct model_layout {
    const struct segments *x, *s;
    const struct optim_ops *optim;
    const char *const *extra_name;
    size_t extras;
    bool has_state; /* the optimizer's vectors follow */
    bool has_extra; /* the strategy's follow */
};

/* Floats of what it has; and when it has everything. */
size_t model_floats(const struct model_layout *layout);
size_t model_floats_most(const struct model_layout *layout);

/* What stands beside the vectors. */
struct checkpoint_note {
    struct course course;
    uint64_t updates;                /* that made the optimizer's vectors, where they follow */
    uint64_t used, repeated, missed; /* records (train.h) */
    char *leases; /* where workers run free, the book of them (data/lease.h); NULL: there is none.
                     Of a checkpoint that was loaded, owned */
    uint64_t seed, job_hash, data_hash;
    size_t records;       /* of the training set */
    double best_score;    /* lowest error yet of the set that counts, or loss where the net has no
                             error rate; INFINITY: none */
    uint32_t incarnation; /* of the driver that wrote it */
};

/* Write checkpoint/NNNNNNNN.safetensors of the run directory (N: the exchange), and remove all but
 * the newest `keep`; and those of higher numbers, of a course that the run has gone back behind.
 * After OK a power cut takes nothing of it. *bytes: its size.
 *
 * ERR_IO     the disk's: what there was to go on from is still there
 * ERR_FULL   there is no room for it; the same
 * ERR_NOMEM */
int checkpoint_save(const struct rundir *dir, const struct checkpoint_note *note,
                    const struct model_layout *layout, const float *model, uint32_t keep,
                    uint64_t *bytes, struct err *err);

/* The path of checkpoint N, into out (RUNDIR_PATH_MAX + 64). */
void checkpoint_path_of(const struct rundir *dir, uint64_t n, char *out, size_t size);

/* Write the model alone to `name` in the run directory. ERR_IO, ERR_FULL, ERR_NOMEM */
int checkpoint_save_model(const struct rundir *dir, const char *name,
                          const struct checkpoint_note *note, const struct model_layout *layout,
                          const float *model, struct err *err);

/* Write the model alone to a new file in another folder, NAME-001.safetensors or the next number
 * that is free; its path into `path`. ERR_IO, ERR_FULL, ERR_NOMEM */
int checkpoint_save_copy(struct disk *disk, const char *folder, const char *name,
                         const struct checkpoint_note *note, const struct model_layout *layout,
                         const float *model, char *path, size_t size, struct err *err);

/* Bytes that a file takes at most: of the model `alone`, or of a checkpoint with all that it may
 * hold. */
uint64_t checkpoint_bytes(const struct model_layout *layout, bool alone);

/* Remove the oldest checkpoint, but not the only one unless `newest_too`. False: none is gone. */
bool checkpoint_remove_oldest(const struct rundir *dir, bool newest_too);

/* Is the model `name` of the run directory the one of this commit point? */
bool checkpoint_model_is_of(const struct rundir *dir, const char *name,
                            const struct course *course);

/* Load the newest valid checkpoint into `model`, which has room for everything; layout->has_state
 * and has_extra come out as what the file holds. Damaged files are passed over with a line in the
 * log. ERR_NOT_FOUND  there is none ERR_INPUT      none is valid, with the reason why the newest is
 * not; or it is of another net ERR_NOMEM */
int checkpoint_load(const struct rundir *dir, const struct logger *log, struct model_layout *layout,
                    float *model, struct checkpoint_note *note, struct err *err);

#endif
