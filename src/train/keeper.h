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
    struct err err; /* why the newest file that could not be written was not */
    float *landing; /* where models come in; `room` floats */
    size_t room;
    struct vec x, s;
    struct snapshot snapshot;    /* opened and closed by the caller */
    const struct joint *first;   /* evaluated before any other; NULL: none is */
    struct checkpoint_note note; /* what does not change */
    /* Told by the main task: records of the course that do not count as used; and the ledger. */
    _Atomic uint64_t unused, repeated, missed;
    /* The book of leases as it stood when a checkpoint was asked for, and when the final model was:
     * owned. One checkpoint at a time is on its way, so that no book is of another model. */
    _Atomic(char *) leases_told, leases_final;
    char *leases;                 /* the one that was taken last; owned */
    _Atomic uint64_t taken;       /* models for checkpoints that have come */
    struct course judged;         /* where the model last evaluated stood */
    _Atomic double last_error;    /* of the set that counts; < 0: none yet */
    void (*reached)(void *user);  /* an error that the job stops at has been reached */
    bool (*replaced)(void *user); /* by a later driver, whose run directory it is now */
    bool free; /* workers run free: models that stand at the same place need not be the same */
    /* Who sends a model does not know how far all were when it was asked for; NULL: it does. */
    void (*where)(void *user, struct course *course);
    void *user;
    struct task *task;
};

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
