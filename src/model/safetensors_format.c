#include "model/safetensors_format.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

void safetensors_digits(const void *data, size_t len, char out[SAFETENSORS_DIGITS + 1])
{
    snprintf(out, SAFETENSORS_DIGITS + 1, "%016" PRIx64, hash_bytes(data, len));
}

bool safetensors_shape_empty(const struct shape *shape)
{
    for (size_t i = 0; i < shape->n; i++)
        if (shape->dim[i] == 0)
            return true;
    return false;
}

/* The length of the sequence that starts with byte `b`, or 0. */
static size_t utf8_length(uint8_t b)
{
    if (b < 0x80)
        return 1;
    if (b >= 0xc0 && b < 0xe0)
        return 2;
    if (b >= 0xe0 && b < 0xf0)
        return 3;
    return b >= 0xf0 && b < 0xf8 ? 4 : 0;
}

bool safetensors_utf8(const char *text, size_t len)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* the smallest code point that
                                                                     needs i bytes */
    const uint8_t *b = (const uint8_t *)text;
    for (size_t i = 0; i < len;) {
        size_t n = utf8_length(b[i]);
        if (n == 0 || n > len - i)
            return false;
        uint32_t code = n == 1 ? b[i] : b[i] & (0xffu >> (n + 1));
        for (size_t k = 1; k < n; k++) {
            if ((b[i + k] & 0xc0) != 0x80)
                return false;
            code = code << 6 | (b[i + k] & 0x3f);
        }
        if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return false;
        i += n;
    }
    return true;
}
