#include "data/raw.h"

#include "base/fault.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void raw_floats(const struct raw *raw, float *x)
{
    size_t C = raw->C, HW = raw->H * raw->W;
    const uint8_t *bytes = raw->at;
    if (raw->form == RAW_FLOATS) {
        memcpy(x, raw->at, C * HW * sizeof *x);
    } else if (raw->form == RAW_PLANES) {
        for (size_t k = 0; k < C * HW; k++)
            x[k] = (float)bytes[k];
    } else {
        for (size_t c = 0; c < C; c++)
            for (size_t k = 0; k < HW; k++)
                x[c * HW + k] = (float)bytes[k * C + c];
    }
}

void *scratch_get(struct scratch *scratch, enum scratch_use use, size_t bytes)
{
    if (scratch->piece[use].bytes < bytes) {
        size_t room = bytes + bytes / 2; /* records vary: do not grow at each that is larger */
        free(scratch->piece[use].at);
        scratch->piece[use].at = malloc(room);
        scratch->piece[use].bytes = scratch->piece[use].at ? room : 0;
    }
    return scratch->piece[use].at;
}

void scratch_release(struct scratch *scratch)
{
    for (int use = 0; use < SCRATCH_USES; use++)
        free(scratch->piece[use].at);
    *scratch = (struct scratch){0};
}

/* ---- values as they are stored ---- */

size_t value_bytes(enum value_type type)
{
    static const size_t bytes[] = {
        [VALUE_U8] = 1,  [VALUE_F32] = 4, [VALUE_I16] = 2, [VALUE_U16] = 2,
        [VALUE_I32] = 4, [VALUE_U32] = 4, [VALUE_I64] = 8,
    };
    return bytes[type];
}

bool value_is_integer(enum value_type type)
{
    return type != VALUE_U8 && type != VALUE_F32;
}

/* Of a type that is wider than a byte, at any address. */
static int64_t integer_at(enum value_type type, const void *at)
{
    union {
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
    } value;
    memcpy(&value, at, value_bytes(type));
    switch (type) {
    case VALUE_I16: return value.i16;
    case VALUE_U16: return value.u16;
    case VALUE_I32: return value.i32;
    case VALUE_U32: return value.u32;
    default: return value.i64;
    }
}

size_t values_from_integers(enum value_type type, const void *from, size_t n, float *to)
{
    size_t each = value_bytes(type);
    PL_ASSERT(value_is_integer(type));
    for (size_t i = 0; i < n; i++) {
        int64_t value = integer_at(type, (const uint8_t *)from + i * each);
        if (value < -INTEGER_MAX || value > INTEGER_MAX)
            return i;
        to[i] = (float)value;
    }
    return n;
}
