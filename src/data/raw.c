#include "data/raw.h"

#include "base/fault.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void raw_floats(const struct raw *raw, float *x)
{
    size_t C = raw->C, HW = raw->H * raw->W;
    const uint8_t *bytes = raw->at;
    PL_ASSERT(raw->shrink == 0);
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
        [VALUE_I32] = 4, [VALUE_U32] = 4, [VALUE_I64] = 8, [VALUE_BF16] = 2,
    };
    return bytes[type];
}

bool value_is_plain(enum value_type type)
{
    return type == VALUE_U8 || type == VALUE_F32;
}

bool value_is_integer(enum value_type type)
{
    return !value_is_plain(type) && type != VALUE_BF16;
}

/* Of a type of integers that is wider than a byte, at any address. */
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

static size_t convert_integers(enum value_type type, const uint8_t *from, size_t n, float *to)
{
    size_t each = value_bytes(type);
    for (size_t i = 0; i < n; i++) {
        int64_t value = integer_at(type, from + i * each);
        if (value < -INTEGER_MAX || value > INTEGER_MAX)
            return i;
        to[i] = (float)value;
    }
    return n;
}

static void widen_halves(const uint8_t *from, size_t n, float *to)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

size_t values_to_floats(enum value_type type, const void *from, size_t n, float *to)
{
    if (value_is_integer(type))
        return convert_integers(type, from, n, to);
    if (type == VALUE_BF16)
        widen_halves(from, n, to);
    else
        raw_floats(&(struct raw){from, type == VALUE_U8 ? RAW_PLANES : RAW_FLOATS, n, 1, 1, 0}, to);
    return n;
}
