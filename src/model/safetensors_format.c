#include "model/safetensors_format.h"

#include "base/hash.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

void safetensors_hash_digits(uint64_t hash, char out[SAFETENSORS_DIGITS + 1])
{
    snprintf(out, SAFETENSORS_DIGITS + 1, "%016" PRIx64, hash);
}

void safetensors_digits(const void *data, size_t len, char out[SAFETENSORS_DIGITS + 1])
{
    safetensors_hash_digits(hash_bytes(data, len), out);
}

bool safetensors_shape_empty(const struct shape *shape)
{
    for (size_t i = 0; i < shape->n; i++)
        if (shape->dim[i] == 0)
            return true;
    return false;
}

bool safetensors_utf8(const char *text, size_t len)
{
    uint32_t code;
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_take(text + i, len - i, &code);
        if (n == 0)
            return false;
    }
    return true;
}
