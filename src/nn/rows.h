/* A blob as rows: for losses and accuracies, which read the C values along an axis of each position
 * together, in canonical order whatever the layout. A blob (outer, C, inner) around the axis has
 * outer · inner positions, the inner ones next to each other. Rows that are not contiguous are
 * copied. */
#ifndef PL_NN_ROWS_H
#define PL_NN_ROWS_H

#include "nn/layer.h"

struct rows {
    const struct blob *blob;
    size_t outer, C, inner;
    bool reorders, gathers; /* steps: to plain order; then the C values of a position together */
    float *plain, *row;     /* buffers of these steps; NULL: not needed */
};

/* The number of a layer's `reorders` for reading the rows, and for writing them. */
static inline unsigned rows_reorders(const struct rows *rows, bool writes)
{
    return rows->reorders ? (writes ? 2 : 1) : 0;
}

/* Plan rows of `blob` around `axis` below its number of dimensions. Adds room that is taken to
 * *bytes. ERR_NOMEM. */
int rows_init(struct rows *rows, const struct blob *blob, size_t axis, struct arena *arena,
              size_t *bytes, struct err *err);

/* Instead, one row for each record (outermost index): its values in canonical order. */
int rows_init_records(struct rows *rows, const struct blob *blob, struct arena *arena,
                      size_t *bytes, struct err *err);

/* The blob's values now, valid until the blob or these rows change: row p at p · C. */
const float *rows_read(const struct rows *rows);

/* The memory for all rows of `to`, which has the blob's shape and layout (its gradient, for
 * example). rows_done then stores them there. The room that rows_read returned is reused. */
float *rows_room(const struct rows *rows, float *to);
void rows_done(const struct rows *rows, float *to);

#endif
