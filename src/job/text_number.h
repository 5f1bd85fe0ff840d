/* Numbers as protobuf text writes them, whatever the locale of the process. Internal to job. */
#ifndef PL_JOB_TEXT_NUMBER_H
#define PL_JOB_TEXT_NUMBER_H

#include "base/bytes.h"

#include <stddef.h>
#include <stdint.h>

/* Decimal, 0x hexadecimal or 0 octal, without sign. False when it is not one or needs more than 64
 * bits. */
bool text_number_integer(const char *s, size_t n, uint64_t *out);

/* A decimal number without sign, with an optional suffix f. False when it is not one or too large
 * for the type. */
bool text_number_float(const char *s, size_t n, float *out);
bool text_number_double(const char *s, size_t n, double *out);

/* Append with as few digits as are read back exactly. */
void text_number_put_float(struct buf *out, float v);
void text_number_put_double(struct buf *out, double v);

#endif
