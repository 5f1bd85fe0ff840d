/* Constants on which the reader and the writer of safetensors must agree. */
#ifndef PL_MODEL_SAFETENSORS_FORMAT_H
#define PL_MODEL_SAFETENSORS_FORMAT_H

#include "tensor/shape.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    SAFETENSORS_LENGTH_BYTES = 8,
    SAFETENSORS_HEADER_MAX = 16 << 20,
    SAFETENSORS_ALIGN = 64, /* of the data in a file of ours */
    SAFETENSORS_DIM_MAX = 0x7fffffff,
    SAFETENSORS_DIGITS = 16,
};

#define SAFETENSORS_METADATA "__metadata__"
#define SAFETENSORS_CHECK    "check"
#define SAFETENSORS_XXH3     "xxh3."

/* The header of a file written here, up to the 16 digits of its own checksum. Their offset is
 * fixed, so that they can be replaced by zeros before the JSON is parsed. */
#define SAFETENSORS_LEAD "{\"" SAFETENSORS_METADATA "\":{\"" SAFETENSORS_CHECK "\":\""

struct safetensors_meta {
    const char *key, *value;
    struct safetensors_meta *next; /* while writing */
};

/* hash_bytes in hex, lower case. */
void safetensors_digits(const void *data, size_t len, char out[SAFETENSORS_DIGITS + 1]);

/* Some dimension is 0, so that shape_count is 0 for no overflow. */
bool safetensors_shape_empty(const struct shape *shape);

/* The text is UTF-8: no stray, overlong or surrogate sequence, nothing above U+10FFFF. */
bool safetensors_utf8(const char *text, size_t len);

#endif
