/* The model writer: a task of the driver that receives copies of the global model, evaluates them
 * and writes them to disk, while training continues. */
#ifndef PL_TRAIN_MODEL_WRITER_H
#define PL_TRAIN_MODEL_WRITER_H

#include "train/checkpoint.h"
#include "train/model.h"
#include "train/model_parts.h"
#include "train/objectives.h"
#include "train/snapshot.h"
#include "train/stream_parts.h"

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
    double wait_s;          /* seconds for which the final model waits for room in `dir` */
    struct err err;         /* why the newest file that could not be written was not */
    float *landing;         /* receives models; `room` floats. NULL: the model is in slices, */
    size_t room;
    struct group *group;             /* of their members; */
    uint32_t slices;                 /* above 1 where it is: then */
    struct model_parts parts;        /* files are written from what they offer, */
    struct drawn_text text;          /* that came with the newest offer, */
    bool best_is_due;                /* and an offer that broke off had the best model */
    struct stream_parts streams;     /* states that belong to checkpoints of several workers */
    struct vec both, x, s;           /* to be evaluated: x, then s, and its two parts */
    _Atomic uint32_t left_out;       /* final models that could not be used */
    atomic_bool here;                /* the final model has arrived */
    atomic_bool waits;               /* a copy of it is safe in a fallback location */
    char copy[RUNDIR_PATH_MAX + 64]; /* that; "": there is none */
    bool copy_in_memory;
    char final_path[RUNDIR_PATH_MAX + 64]; /* where the final model is, at the end */
    bool elsewhere;                        /* and that is not the run directory */
    struct snapshot snapshot;              /* opened and closed by the caller */
    const struct global_model *first;      /* evaluated before any other; NULL: none is */
    struct checkpoint_header header;       /* the constant fields */
    /* Set by the main task from the ledger: unused, repeated and missed samples. */
    _Atomic uint64_t unused, repeated, missed;
    /* Copies of the books of samples at the request for a checkpoint, and at that for the final
     * model; owned. One checkpoint at a time is under way, so that none belongs to another
     * model. */
    _Atomic(struct book_texts *) books_given, books_final;
    struct book_texts *books;        /* the ones that were taken last; owned; NULL: none */
    _Atomic uint64_t taken;          /* models for checkpoints that have arrived */
    struct progress evaluated;       /* where the model last evaluated stood, */
    struct progress at;              /* progress of the newest model that arrived or is kept */
    struct model_header kept_model;  /* header of the complete model in `landing`; floats 0: none */
    _Atomic int64_t kept_at;         /* when the newest model arrived, on the world's clock; 0:
                                        none */
    _Atomic uint64_t kept_exchanges; /* and of how many exchanges it is */
    bool written;                    /* the newest checkpoint of this run is of: */
    struct progress written_at;
    int64_t written_at_offset;       /* when that model arrived; 0: none */
    _Atomic uint64_t evaluations;    /* evaluations that have begun */
    _Atomic int64_t evaluated_ns;    /* of those that have ended, */
    _Atomic int64_t evaluates_since; /* and of the one under way; 0: none */
    _Atomic double last_error;       /* error of the deciding set; < 0: none yet */
    void (*reached)(void *user);     /* an error that the job stops at has been reached */
    bool (*replaced)(void *user);    /* has a later driver taken the run directory over? */
    bool may_differ;                 /* two models of one progress may differ */
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

/* Write the final model from `landing` into the run directory; wait for room, or for a writable
 * disk. Meanwhile a copy is in a fallback location, and remains the model at the end of the wait.
 * `complete`: no checkpoint is needed any more to resume from. ERR_CANCELLED; ERR_IO, ERR_FULL: it
 * was written nowhere; ERR_PEER: its slices are gone */
int model_writer_write_final(struct model_writer *k, const struct checkpoint_header *header,
                             bool complete);

/* The driver's books at the request for a checkpoint, or for the final model, which the writer owns
 * from now on. From the main task; without memory the writer keeps the previous ones. */
void model_writer_give_books(struct model_writer *k, bool final, const struct book_texts *texts);

/* Use the books that were given at the request for this use. */
void model_writer_set_books(struct model_writer *k, uint32_t use);

/* After the task has ended: model_writer_keep stores a newer model in `landing`, and keeps the
 * present one if it is as new. model_writer_save_kept writes it as a checkpoint, if the newest is
 * older. Returns its path, or that in a fallback location; NULL: there is no model, or no room for
 * it. */
void model_writer_keep(struct model_writer *k, const struct progress *progress,
                       const struct global_model *model, size_t extras);
const char *model_writer_save_kept(struct model_writer *k);

/* Seconds of all evaluations, the one under way included. From any task. */
double model_writer_evaluated(const struct model_writer *k);

/* Was the model of this progress the last one to be evaluated? */
bool model_writer_has_evaluated(const struct model_writer *k, const struct progress *progress);

/* Allocate models of the layout from the arena. The caller has set world, log, events, dir, keep,
 * objectives, layout, header, the callbacks and user. ERR_NOMEM */
int model_writer_init(struct model_writer *k, struct arena *arena);

/* After its task has ended: the message for that status; NULL: none. */
const char *model_writer_set_samples(const struct model_writer *k, int result);

/* After its task has ended: free what is not the arena's. */
void model_writer_release(struct model_writer *k);

/* Start the task; it ends after the model that is marked final. ERR_NOMEM */
int model_writer_start(struct model_writer *k);

#endif
