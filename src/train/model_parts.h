/* A model in slices on its way to the driver, which never has all of it. The slices of one replica
 * offer it, in one view: one of them sends a header (model.h) with its scores. Then the driver
 * takes it as often as it wants, for one file after another: it asks all slices, and each sends its
 * vectors, piece by piece. The driver receives the pieces in the order of the file's tensors, and
 * keeps one of each slice. At last it takes nothing, which ends the offer.
 *
 * All of it belongs to the view: in another one both sides give up, and the slices offer again. */
#ifndef PL_TRAIN_MODEL_PARTS_H
#define PL_TRAIN_MODEL_PARTS_H

#include "train/checkpoint.h"

/* The vectors that the driver takes. */
enum parts_taken { PARTS_NONE, PARTS_MODEL, PARTS_ALL }; /* nothing; x and s; all others, too */

/* ---- the driver's side ---- */

struct part_stream;

struct model_parts {
    struct group *group;
    const struct segments *x, *s;
    struct segment streams_only; /* the carried states of all streams, as one segment, */
    struct segments streams;     /* and its table */
    size_t slices;
    struct part_stream *stream; /* by slice */
    struct model_source source; /* of the present offer's model */
    struct ranks ranks;         /* its slices, and the driver */
    struct coll coll;
    uint64_t take;  /* numbers what is taken in this run */
    size_t vectors; /* that are taken; 0: none are under way */
    size_t carried; /* the number of the carried states among them, or SIZE_MAX */
    /* The place in the file: a vector, a segment, a float of it. */
    size_t vector, segment, at;
};

/* Memory from the arena. The layout's tables are those of the whole model, borrowed. ERR_NOMEM */
int model_parts_init(struct model_parts *p, struct group *group, size_t slices,
                     const struct model_layout *layout, struct arena *arena);

/* An offer of the replica of `node` in that view, which must be the current one, and have all of
 * its slices. ERR_VIEW, ERR_TIMEOUT: it is not; ERR_CANCELLED, ERR_DRIVER */
int model_parts_begin(struct model_parts *p, uint32_t node, uint32_t view);

/* The slices need not wait any more. */
void model_parts_end(struct model_parts *p);

/* ---- a slice's side ---- */

/* Send this slice's vectors, of which the strategy's are `extras`, as often as the driver takes
 * them, until it takes nothing. `c`: as of m->offer. ERR_VIEW and the other errors of
 * collectives */
int model_parts_serve(struct coll *c, const struct global_model *model, size_t extras);

#endif
