/* Functions that the files of recurrent ops share (recurrence*.c). */
#ifndef PL_TENSOR_RECURRENCE_INTERNAL_H
#define PL_TENSOR_RECURRENCE_INTERNAL_H

#include "tensor/columns.h"
#include "tensor/recurrence.h"

/* The place of step t of a record. */
static inline size_t recurrence_place(const struct recurrence *r, size_t n, size_t t)
{
    return n * r->spec.T + (r->spec.reverse ? r->spec.T - 1 - t : t);
}

/* The factor of the state before step t. */
float recurrence_cont(const struct recurrence *r, const struct recurrence_args *args, size_t n,
                      size_t t);

/* Of each record the units' own values are columns of all units'. */
struct columns recurrence_columns(const struct recurrence *r, size_t rows);

/* The records that a thread takes. */
struct range recurrence_part(const struct recurrence *r, size_t part);

/* Of some records: `to`, rows of `columns`, = bias (NULL: 0) + `from`, K of each, by packed
 * weights. */
void recurrence_multiply(const struct recurrence *r, struct range rows, struct product_a from,
                         size_t K, const float *packed, size_t columns, const float *bias,
                         float *to);

/* The products of all kinds of rows with the input, those of the row at a place, and back. */
void recurrence_rows_forward(const struct recurrence *r, const struct recurrence_args *args);
const float *recurrence_row_sums(const struct recurrence *r, const struct recurrence_args *args,
                                 size_t at);
void recurrence_rows_backward(const struct recurrence *r, const struct recurrence_args *args);

/* The values that the units of a record read and write at a step. */
struct gate_row recurrence_row(const struct recurrence *r, const struct recurrence_args *args,
                               size_t n, size_t t);

/* Of a step, behind the gates r and z: gate n and the outputs; and back to the gradient by r h',
 * and then to those by gate r and h'. */
void recurrence_reset_forward(const struct recurrence *r, const struct recurrence_args *args,
                              size_t t);
void recurrence_reset_backward(const struct recurrence *r, const struct recurrence_args *args);
void recurrence_reset_finish(const struct recurrence *r, const struct recurrence_args *args,
                             size_t t);
/* The gradient of gate n's weights. */
void recurrence_reset_weights(const struct recurrence *r, const struct recurrence_args *args);

#endif
