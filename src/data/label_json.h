/* A label in a text of JSON, which may be hostile. */
#ifndef PL_DATA_LABEL_JSON_H
#define PL_DATA_LABEL_JSON_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { LABEL_JSON_BYTES_MAX = 1 << 20 };

/* The whole number below LABEL_MAX that is the member `key` of the object; "a.b" is member b of the
 * object that is its member a. Of `n` (<= LABEL_JSON_BYTES_MAX) bytes; takes memory of some 70
 * bytes for each of them at most while it runs. ERR_INPUT: it is not JSON, or has no such number;
 * the message does not name it. */
int label_json_read(const char *text, size_t n, const char *key, uint32_t *out, struct err *err);

#endif
