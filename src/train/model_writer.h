/* The model writer: who takes the copies of the joint model that come as messages, evaluates them,
 * and keeps them on disk. A task of the driver's, concurrent with training. */
#ifndef PL_TRAIN_MODEL_WRITER_H
#define PL_TRAIN_MODEL_WRITER_H

#include "train/checkpoint.h"
#include "train/model.h"
#include "train/objectives.h"
#include "train/snapshot.h"

struct model_writer {
    struct world *world;
    const struct logger *log;
    const struct events *events;
    const struct rundir *dir; /* NULL: nothing is kept on disk */
    uint32_t keep;            /* checkpoints */
    struct objectives objectives;
    struct model_layout layout;
    const struct rundir_fallback
        *fallbacks;         /* where else the final model may be put; may be NULL */
    const atomic_int *stop; /* as train_options'; raised while a model waits: end the wait */
    double wait_s;          /* how long the final model waits for a place in `dir` */
    struct err err;         /* why the newest file that could not be written was not */
    float *landing;         /* where models come in; `room` floats */
    size_t room;
    struct vec x, s;
    _Atomic uint32_t left_out;       /* final models that came, and could not be used */
    atomic_bool here;                /* the final model has come */
    atomic_bool waits;               /* and a copy of it is safe, but not where it belongs */
    char copy[RUNDIR_PATH_MAX + 64]; /* that; "": there is none */
    bool copy_in_memory;
    char final_path[RUNDIR_PATH_MAX + 64]; /* where the final model is, at the end */
    bool elsewhere;                        /* and that is not the run directory */
    struct snapshot snapshot;              /* opened and closed by the caller */
    const struct global_model *first;      /* evaluated before any other; NULL: none is */
    struct checkpoint_header header;       /* what does not change */
    /* Told by the main task: records of the progress that do not count as used; and the ledger. */
    _Atomic uint64_t unused, repeated, missed;
    /* The book of leases as it stood when a checkpoint was asked for, and when the final model was:
     * owned. One checkpoint at a time is on its way, so that no book is of another model. */
    _Atomic(char *) leases_given, leases_final;
    char *leases;                    /* the one that was taken last; owned */
    _Atomic uint64_t taken;          /* models for checkpoints that have come */
    struct progress evaluated;       /* where the model last evaluated stood, */
    struct progress at;              /* and the newest that has come, or is kept */
    struct model_header kept_model;  /* of what lies whole in `landing`; floats 0: nothing does */
    _Atomic int64_t kept_at;         /* when the newest model came, on the world's clock; 0: none */
    _Atomic uint64_t kept_exchanges; /* and of how many exchanges it is */
    bool written;                    /* the newest checkpoint of this run is of: */
    struct progress written_at;
    int64_t written_at_offset;    /* when that model came; 0: there is none */
    _Atomic uint64_t evaluations; /* evaluations that have begun */
    _Atomic double last_error;    /* of the set that counts; < 0: none yet */
    void (*reached)(void *user);  /* an error that the job stops at has been reached */
    bool (*replaced)(void *user); /* by a later driver, whose run directory it is now */
    bool free; /* the strategy is asynchronous: models that stand at the same place need not be the
                  same */
    /* Which of these uses may that node send a model for? NULL: all. */
    uint32_t (*allowed)(void *user, uint32_t node, uint32_t uses);
    /* The sender of a model does not know the progress of all workers at the time of the request;
     * NULL: it does. */
    void (*where)(void *user, struct progress *progress);
    void *user;
    struct task *task;
};

/* The header of a checkpoint with a model of that progress. */
struct checkpoint_header model_writer_header_at(const struct model_writer *k,
                                                const struct progress *progress);

/* Write a checkpoint of the model in `landing`. One that cannot be written does not end the run;
 * the next may succeed. */
void model_writer_checkpoint(struct model_writer *k, const struct model_header *model);

/* Write the final model, which lies in `landing`, into the run directory; wait for room there, or
 * for a disk that can be written. Meanwhile a copy is in another place, and that is what is left at
 * the end of the wait. `complete`: the run needs no checkpoint any more to resume from.
 * ERR_CANCELLED; ERR_IO, ERR_FULL: it is nowhere */
int model_writer_write_final(struct model_writer *k, const struct checkpoint_header *header,
                             bool complete);

/* The book of leases that was told with the request for a model for that use is this one's. */
void model_writer_set_leases(struct model_writer *k, uint32_t use);

/* Once the task has ended: put a newer model where models come in; what is there stays if it is as
 * new. And write what is there as a checkpoint, if the newest is older: its path, or that of a copy
 * in another place; NULL: there is nothing, or no place for it. */
void model_writer_keep(struct model_writer *k, const struct progress *progress,
                       const struct global_model *model, size_t extras);
const char *model_writer_save_kept(struct model_writer *k);

/* Is what was evaluated last the model that stood there? */
bool model_writer_has_evaluated(const struct model_writer *k, const struct progress *progress);

/* Memory for models of the layout from the arena. The caller has filled in world, log, events, dir,
 * keep, objectives, layout, note, reached and user. ERR_NOMEM */
int model_writer_init(struct model_writer *k, struct arena *arena);

/* Why its task ended with that; NULL: nobody said. Once it has ended. */
const char *model_writer_set_samples(const struct model_writer *k, int result);

/* The task has ended: give back what is not the arena's. */
void model_writer_release(struct model_writer *k);

/* Start the task; it ends after the model that is marked final. ERR_NOMEM */
int model_writer_start(struct model_writer *k);

#endif
