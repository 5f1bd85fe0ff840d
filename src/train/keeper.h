/* The keeper: who takes the copies of the joint model that come as messages, evaluates them, and
 * keeps them on disk. A task of the driver's, beside training. */
#ifndef PL_TRAIN_KEEPER_H
#define PL_TRAIN_KEEPER_H

#include "train/checkpoint.h"
#include "train/model.h"
#include "train/objectives.h"
#include "train/snapshot.h"

struct keeper {
    struct world *world;
    const struct logger *log;
    const struct events *events;
    const struct rundir *dir; /* NULL: nothing is kept on disk */
    uint32_t keep;            /* checkpoints */
    struct objectives objectives;
    struct model_layout layout;
    const struct rundir_place *places; /* where else the final model may be put; may be NULL */
    const atomic_int *stop; /* as train_options'; raised while a model waits: end the wait */
    double wait_s;          /* how long the final model waits for a place in `dir` */
    struct err err;         /* why the newest file that could not be written was not */
    float *landing;         /* where models come in; `room` floats */
    size_t room;
    struct vec x, s;
    _Atomic uint32_t aside;          /* final models that came, and could not be used */
    atomic_bool here;                /* the final model has come */
    atomic_bool waits;               /* and a copy of it is safe, but not where it belongs */
    char copy[RUNDIR_PATH_MAX + 64]; /* that; "": there is none */
    bool copy_in_memory;
    char final_path[RUNDIR_PATH_MAX + 64]; /* where the final model is, at the end */
    bool elsewhere;                        /* and that is not the run directory */
    struct snapshot snapshot;              /* opened and closed by the caller */
    const struct joint *first;             /* evaluated before any other; NULL: none is */
    struct checkpoint_note note;           /* what does not change */
    /* Told by the main task: records of the course that do not count as used; and the ledger. */
    _Atomic uint64_t unused, repeated, missed;
    /* The book of leases as it stood when a checkpoint was asked for, and when the final model was:
     * owned. One checkpoint at a time is on its way, so that no book is of another model. */
    _Atomic(char *) leases_told, leases_final;
    char *leases;                    /* the one that was taken last; owned */
    _Atomic uint64_t taken;          /* models for checkpoints that have come */
    struct course judged;            /* where the model last evaluated stood, */
    struct course at;                /* and the newest that has come, or is kept */
    struct model_note held;          /* of what lies whole in `landing`; floats 0: nothing does */
    _Atomic int64_t held_at;         /* when the newest model came, on the world's clock; 0: none */
    _Atomic uint64_t held_exchanges; /* and of how many exchanges it is */
    bool written;                    /* the newest checkpoint of this run is of: */
    struct course written_at;
    int64_t written_came;         /* when that model came; 0: there is none */
    _Atomic uint64_t judgements;  /* evaluations that have begun */
    _Atomic double last_error;    /* of the set that counts; < 0: none yet */
    void (*reached)(void *user);  /* an error that the job stops at has been reached */
    bool (*replaced)(void *user); /* by a later driver, whose run directory it is now */
    bool free; /* workers run free: models that stand at the same place need not be the same */
    /* Which of these uses may that node send a model for? NULL: all. */
    uint32_t (*allowed)(void *user, uint32_t node, uint32_t uses);
    /* Who sends a model does not know how far all were when it was asked for; NULL: it does. */
    void (*where)(void *user, struct course *course);
    void *user;
    struct task *task;
};

/* What a checkpoint says beside the vectors of a model that stood there. */
struct checkpoint_note keeper_note_at(const struct keeper *k, const struct course *course);

/* Write a checkpoint of the model in `landing`. One that cannot be written does not end the run;
 * the next may succeed. */
void keeper_checkpoint(struct keeper *k, const struct model_note *model);

/* Write the final model, which lies in `landing`, into the run directory; wait for room there, or
 * for a disk that can be written. Meanwhile a copy is in another place, and that is what is left at
 * the end of the wait. `complete`: the run needs no checkpoint any more to go on from.
 * ERR_CANCELLED; ERR_IO, ERR_FULL: it is nowhere */
int keeper_write_final(struct keeper *k, const struct checkpoint_note *note, bool complete);

/* The book of leases that was told with the request for a model for that use is this one's. */
void keeper_take_leases(struct keeper *k, uint32_t use);

/* Once the task has ended: put a newer model where models come in; what is there stays if it is as
 * new. And write what is there as a checkpoint, if the newest is older: its path, or that of a copy
 * in another place; NULL: there is nothing, or no place for it. */
void keeper_hold(struct keeper *k, const struct course *course, const struct joint *joint,
                 size_t extras);
const char *keeper_save_held(struct keeper *k);

/* Is what was evaluated last the model that stood there? */
bool keeper_has_judged(const struct keeper *k, const struct course *course);

/* Memory for models of the layout from the arena. The caller has filled in world, log, events, dir,
 * keep, objectives, layout, note, reached and user. ERR_NOMEM */
int keeper_init(struct keeper *k, struct arena *arena);

/* Why its task ended with that; NULL: nobody said. Once it has ended. */
const char *keeper_says(const struct keeper *k, int result);

/* The task has ended: give back what is not the arena's. */
void keeper_release(struct keeper *k);

/* Start the task; it ends after the model that is marked final. ERR_NOMEM */
int keeper_start(struct keeper *k);

#endif
