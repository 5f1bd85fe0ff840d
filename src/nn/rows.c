#include "nn/rows.h"

static int make_room(struct rows *rows, struct arena *arena, size_t *bytes, struct err *err)
{
    size_t n = rows->blob->count;
    if (rows->reorders)
        rows->plain = arena_array(arena, n, float);
    if (rows->gathers)
        rows->row = arena_array(arena, n, float);
    if ((rows->reorders && !rows->plain) || (rows->gathers && !rows->row))
        return err_set(err, ERR_NOMEM, "out of memory for %zu scores", n);
    *bytes += ((size_t)rows->reorders + (size_t)rows->gathers) * n * sizeof(float);
    return OK;
}

/* Is the blob's memory other than that of a plain one? In NHWC one channel, or one pixel, is not.
 */
static bool is_mixed(const struct blob *blob)
{
    if (blob->layout != LAYOUT_NHWC)
        return blob->layout != LAYOUT_PLAIN;
    return blob->shape.dim[1] != 1 && shape_count_from(&blob->shape, 2) != 1;
}

int rows_init(struct rows *rows, const struct blob *blob, size_t axis, struct arena *arena,
              size_t *bytes, struct err *err)
{
    const struct shape *shape = &blob->shape;
    *rows = (struct rows){.blob = blob, .outer = 1, .C = shape->dim[axis]};
    for (size_t i = 0; i < axis; i++)
        rows->outer *= shape->dim[i];
    rows->inner = shape_count_from(shape, axis + 1);
    bool together = blob->layout == LAYOUT_NHWC && axis == 1; /* a pixel's channels */
    rows->reorders = is_mixed(blob) && !together;
    rows->gathers = rows->inner > 1 && rows->C > 1 && !together;
    return make_room(rows, arena, bytes, err);
}

int rows_init_records(struct rows *rows, const struct blob *blob, struct arena *arena,
                      size_t *bytes, struct err *err)
{
    size_t N = blob->shape.dim[0];
    *rows = (struct rows){.blob = blob, .outer = N, .C = blob->count / N, .inner = 1};
    rows->reorders = is_mixed(blob);
    return make_room(rows, arena, bytes, err);
}

/* (outer, a, b) to (outer, b, a). */
static void transpose_rows(size_t outer, size_t a, size_t b, const float *from, float *to)
{
    for (size_t o = 0; o < outer; o++, from += a * b, to += a * b)
        for (size_t i = 0; i < b; i++)
            for (size_t k = 0; k < a; k++)
                to[i * a + k] = from[k * b + i];
}

const float *rows_read(const struct rows *rows)
{
    const float *x = rows->blob->at;
    if (rows->reorders) {
        kernels_reorder(&rows->blob->shape, rows->blob->layout, x, LAYOUT_PLAIN, rows->plain);
        x = rows->plain;
    }
    if (rows->gathers) {
        transpose_rows(rows->outer, rows->C, rows->inner, x, rows->row);
        x = rows->row;
    }
    return x;
}

float *rows_room(const struct rows *rows, float *to)
{
    return rows->gathers ? rows->row : rows->reorders ? rows->plain : to;
}

void rows_done(const struct rows *rows, float *to)
{
    float *plain = rows->reorders ? rows->plain : to;
    if (rows->gathers)
        transpose_rows(rows->outer, rows->inner, rows->C, rows->row, plain);
    if (rows->reorders)
        kernels_reorder(&rows->blob->shape, LAYOUT_PLAIN, rows->plain, rows->blob->layout, to);
}
