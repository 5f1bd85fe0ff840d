/* Rows of a recurrent layer's input that repeat, as those of an Embed do: of each kind there is one
 * product with the input weights, and one gradient by it. */
#include "tensor/recurrence_internal.h"

#include "tensor/kernels_common.h"

#include <string.h>

static size_t places_of(const struct recurrence *r)
{
    return r->spec.N * r->spec.T;
}

/* `kinds`: it has none. */
static size_t kind_of(const struct recurrence *r, float number)
{
    size_t kinds = r->spec.kinds;
    return number > -1.0f && number < (float)kinds ? (size_t)number : kinds;
}

/* A row of each kind; 0 for those that are not there. */
static void pick_rows(const struct recurrence *r, const struct recurrence_args *args)
{
    const struct recurrence_rows *rows = &r->rows;
    size_t D = r->spec.D, count = r->spec.kinds + 1, places = places_of(r);
    for (size_t k = 0; k < count; k++)
        rows->first[k] = places;
    for (size_t at = places; at-- > 0;)
        rows->first[kind_of(r, args->numbers[at])] = at;
    memset(rows->x, 0, count * D * sizeof *rows->x);
    for (size_t k = 0; k < count; k++)
        if (rows->first[k] < places)
            memcpy(rows->x + k * D, args->x + rows->first[k] * D, D * sizeof *rows->x);
}

void recurrence_rows_forward(const struct recurrence *r, const struct recurrence_args *args)
{
    const struct recurrence_rows *rows = &r->rows;
    pick_rows(r, args);
    const struct op_args product = {
        .x = rows->x, .w = args->w[RECURRENCE_WX], .b = args->w[RECURRENCE_BX], .y = rows->gates};
    rows->op->ops->forward(rows->op, &product);
}

const float *recurrence_row_sums(const struct recurrence *r, const struct recurrence_args *args,
                                 size_t at)
{
    return r->rows.gates + kind_of(r, args->numbers[at]) * r->G * r->spec.own.len;
}

/* Of some columns: the sum over the places of each kind. */
static void sum_columns(const struct recurrence *r, const float *numbers, size_t from, size_t len)
{
    size_t width = r->G * r->spec.own.len;
    for (size_t at = 0; at < places_of(r); at++) {
        vec_host_add(r->rows.gates + kind_of(r, numbers[at]) * width + from,
                     r->gates + at * width + from, len);
    }
}

static void sum_gradients(const struct recurrence *r, const float *numbers)
{
    enum { COLUMNS = 256 };
    size_t width = r->G * r->spec.own.len;
    memset(r->rows.gates, 0, (r->spec.kinds + 1) * width * sizeof(float));
#pragma omp parallel for schedule(static) if (places_of(r) * width >= PARALLEL_MIN)
    for (size_t from = 0; from < width; from += COLUMNS)
        sum_columns(r, numbers, from, width - from < COLUMNS ? width - from : COLUMNS);
}

void recurrence_rows_backward(const struct recurrence *r, const struct recurrence_args *args)
{
    const struct recurrence_rows *rows = &r->rows;
    size_t D = r->spec.D, places = places_of(r);
    pick_rows(r, args);
    sum_gradients(r, args->numbers);
    const struct op_args product = {
        .x = rows->x,
        .w = args->w[RECURRENCE_WX],
        .dy = rows->gates,
        .dx = args->dx ? rows->dx : NULL,
        .dw = args->dw[RECURRENCE_WX],
        .db = args->dw[RECURRENCE_BX],
    };
    rows->op->ops->backward(rows->op, &product);
    if (!args->dx)
        return;
    memset(args->dx, 0, places * D * sizeof *args->dx);
    for (size_t k = 0; k <= r->spec.kinds; k++)
        if (rows->first[k] < places)
            memcpy(args->dx + rows->first[k] * D, rows->dx + k * D, D * sizeof *args->dx);
}
