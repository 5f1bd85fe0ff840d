/* The bottoms of losses and accuracies over classes: bottom 0 has C scores for each position, along
 * an axis, and bottom 1 one label a position. A position is a record, or a pixel of one, or an
 * index of the other axes of the scores; bottom 1 has as many values in canonical order, in any
 * shape. It is the data layer's label, or another blob, whose values are truncated to integers. */
#ifndef PL_NN_LABELS_H
#define PL_NN_LABELS_H

#include "nn/rows.h"

/* The value of a position without a class: ignored, or a label that is no class. */
enum { LABEL_IGNORED = -1, LABEL_BAD = -2 };

struct labels {
    struct rows scores, given;
    size_t per, outer; /* a record's positions; a record's part of Caffe's outer_num_ */
    bool ignores;
    int32_t ignored;
    int32_t *at;  /* one for each position of the last batch */
    size_t valid; /* of these, not ignored */
};

/* Plan them for the layer, whose bottom 0 has its scores along `axis` > 0, or, with LABELS_RECORD,
 * all over a record. `ignored` may be NULL. Sets layer->classes, or of a loss layer->numbers, where
 * bottom 1 is the data layer's. Adds to layer->buffer_bytes.
 *
 * ERR_INPUT  not one label for each position; more classes than a label can count (2^24,
 *            exact in a float) */
enum { LABELS_RECORD = 0 };
int labels_init(struct labels *labels, struct layer *layer, const struct setup *setup, size_t axis,
                const int32_t *ignored, struct err *err);

/* Read those of the batch's first `records` into `at`. */
void labels_read(struct labels *labels, size_t records);

#endif
