/* Constants on which the reader and the writer of safetensors must agree. */
#ifndef PL_MODEL_SAFETENSORS_FORMAT_H
#define PL_MODEL_SAFETENSORS_FORMAT_H

#include "base/file.h"
#include "model/safetensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* hash_bytes in hex, lower case; and a hash that is known. */
void safetensors_digits(const void *data, size_t len, char out[SAFETENSORS_DIGITS + 1]);
void safetensors_hash_digits(uint64_t hash, char out[SAFETENSORS_DIGITS + 1]);

/* The table of an open file: its metadata and its tensors, without their data, which begin
 * at byte *data. */
int safetensors_read_table(const char *path, const struct file_open *file, struct safetensors *out,
                           uint64_t *data, struct err *err);

/* Some dimension is 0, so that shape_count is 0 for no overflow. */
bool safetensors_shape_empty(const struct shape *shape);

/* The text is UTF-8: no stray, overlong or surrogate sequence, nothing above U+10FFFF. */
bool safetensors_utf8(const char *text, size_t len);

#endif
