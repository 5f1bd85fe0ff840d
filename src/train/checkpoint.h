/* Checkpoints (D11): the state from which a run resumes, as safetensors. Tensors are joint/SEGMENT
 * and s/SEGMENT; the optimizer's state by its own name (momentum/SEGMENT), if all workers share it
 * or there is one worker; the strategy's own (outer_momentum/SEGMENT); and, of one worker, of
 * several with fixed shares, or of slices, the state that the streams of recurrent layers carry:
 * carried/state, a row a stream, and carried/record, the record that each belongs to, or none
 * (learner/carried_state.h). The metadata has the progress, the sample counts, the seed and the
 * driver's incarnation. A checksum covers every byte. */
#ifndef PL_TRAIN_CHECKPOINT_H
#define PL_TRAIN_CHECKPOINT_H

#include "optim/optim.h"
#include "strategy/strategy.h"
#include "train/rundir.h"

struct model_layout;

/* Where the floats of a model come from that is in no memory whole. */
struct model_source {
    /* The model's file is about to be written with the vectors that the layout has: `next` gives
     * the floats of its tensors, one after another in the order of the file. ERR_PEER: the nodes
     * that have them are gone; ERR_CANCELLED, ERR_NOMEM, ERR_IO */
    int (*begin)(void *user, const struct model_layout *layout, struct err *err);
    int (*next)(void *user, float *into, size_t n, struct err *err);
    /* Also after an error, and before all floats were taken. */
    void (*end)(void *user);
    void *user;
};

/* A model laid out as it travels: x, then s, then each vector of optimizer state, then those of the
 * strategy's own, then the carried state. */
struct model_layout {
    const struct segments *x, *s;
    const struct model_source *source; /* NULL: callers have the model in memory; else their `model`
                                          is NULL */
    const struct optim_ops *optim;
    const char *const *extra_name;
    size_t extras;
    size_t streams, row; /* of the carried state; row 0: there is none in this run */
    bool has_state;      /* the optimizer's vectors follow */
    bool has_extra;      /* the strategy's follow */
    bool has_carried;    /* the carried state follows */
    bool drops_carried;  /* one that is of other streams, or not whole, is left out, not refused */
};

/* Floats of the present vectors; floats with all optional vectors. */
size_t model_floats(const struct model_layout *layout);
size_t model_floats_most(const struct model_layout *layout);

/* The header of a checkpoint, besides the vectors. */
/* The driver's books of samples at one moment, as texts. */
struct book_texts {
    char *leases;   /* in asynchronous strategies the lease table (data/lease.h); NULL: none */
    char *holdings; /* with local_data (train/holdings.h); NULL: none */
};

void book_texts_release(struct book_texts *books);

struct checkpoint_header {
    struct progress progress;
    uint64_t updates;                /* that made the optimizer's vectors, where they follow */
    uint64_t used, repeated, missed; /* records (train.h) */
    struct book_texts books;         /* owned in a loaded checkpoint */
    uint64_t seed, job_hash, data_hash;
    size_t records;       /* of the training set */
    double best_score;    /* lowest error so far of the deciding set, or loss where the net has no
                             error rate; INFINITY: none */
    uint32_t incarnation; /* of the driver that wrote it */
};

/* Is a further than b? */
bool progress_is_further(const struct progress *a, const struct progress *b);

/* Write checkpoint/NNNNNNNN.safetensors of the run directory (N: the exchange), and remove all but
 * the newest `keep`; and those of higher numbers, of a progress that the run has gone back behind.
 * After OK a power cut takes nothing of it. *bytes: its size. Here and below the driver of the
 * note's incarnation writes: it replaces and removes nothing once a later driver has the run.
 *
 * ERR_IO      the disk's: what there was to resume from is still there
 * ERR_FULL    there is no room for it; the same
 * ERR_FENCED  a later driver has the run
 * ERR_NOMEM */
int checkpoint_save(const struct rundir *dir, const struct checkpoint_header *header,
                    const struct model_layout *layout, const float *model, uint32_t keep,
                    uint64_t *bytes, struct err *err);

/* Write a checkpoint to another file of the run directory, by its whole path. Errors as above. */
int checkpoint_save_at(const struct rundir *dir, const char *path,
                       const struct checkpoint_header *header, const struct model_layout *layout,
                       const float *model, uint64_t *bytes, struct err *err);

/* The path of checkpoint N, into out (RUNDIR_PATH_MAX + 64). */
void checkpoint_path_of(const struct rundir *dir, uint64_t n, char *out, size_t size);

/* Write the model alone to `name` in the run directory. ERR_IO, ERR_FULL, ERR_FENCED, ERR_NOMEM */
int checkpoint_save_model(const struct rundir *dir, const char *name,
                          const struct checkpoint_header *header, const struct model_layout *layout,
                          const float *model, struct err *err);

/* Turn the written checkpoint of the header's commit point into the model `name` of the run
 * directory, which needs no room. ERR_IO, ERR_FENCED */
int checkpoint_turn_into_model(const struct rundir *dir, const struct checkpoint_header *header,
                               const char *name, struct err *err);

/* Write the model alone to a new file in another folder, NAME-001.safetensors or the next number
 * above those that are taken; its path into `path`. One attempt. ERR_IO, ERR_FULL, ERR_NOMEM */
int checkpoint_save_copy(struct disk *disk, const char *folder, const char *name,
                         const struct checkpoint_header *header, const struct model_layout *layout,
                         const float *model, char *path, size_t size, struct err *err);

/* Bytes that a file takes at most: of the model `alone`, or of a checkpoint with all that it may
 * hold. */
uint64_t checkpoint_bytes(const struct model_layout *layout, bool alone);

/* Remove the oldest checkpoint, for a driver of that incarnation, but never the newest. false: none
 * was removed. */
bool checkpoint_remove_oldest(const struct rundir *dir, uint32_t incarnation);

/* Reads the header of a file alone, without the lease table. ERR_INPUT: it cannot be read, or is no
 * checkpoint or model of a run; ERR_NOMEM */
int checkpoint_read_header(const char *path, struct checkpoint_header *header, struct err *err);

/* The books of a checkpoint alone, to be released. ERR_INPUT, ERR_NOMEM */
int checkpoint_read_books(const char *path, struct book_texts *books, struct err *err);

/* The header of the newest checkpoint that has a readable one, without the lease table; zeroed if
 * none has. false: there is no checkpoint. */
bool checkpoint_find_newest(const struct rundir *dir, struct checkpoint_header *header);

/* Is the model `name` of the run directory that of this commit point? Reads its header. */
bool checkpoint_model_is_of(const struct rundir *dir, const char *name,
                            const struct progress *progress);

/* Load the newest valid checkpoint into `model`, which has room for everything; layout->has_state,
 * has_extra and has_carried become those of the file. A line in the log names each damaged file.
 *
 *   ERR_NOT_FOUND  there is no checkpoint
 *   ERR_INPUT      none is valid, with the error of the newest; or it is of another net, or its
 *                  carried state of other streams
 *   ERR_NOMEM */
int checkpoint_load(const struct rundir *dir, const struct logger *log, struct model_layout *layout,
                    float *model, struct checkpoint_header *header, struct err *err);

/* The same of one file, which may be a model that was written alone, without the other vectors of a
 * checkpoint. ERR_INPUT, ERR_NOMEM */
int checkpoint_load_model(const char *path, struct model_layout *layout, float *model,
                          struct checkpoint_header *header, struct err *err);

#endif
