/* UTF-8: code points and their bytes. */
#ifndef PL_BASE_UTF8_H
#define PL_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum {
    UTF8_BYTES_MAX = 4,       /* of a code point */
    UTF8_CODES = 0x10ffff + 1 /* code points are below it */
};

/* Length of the first code point of `n` > 0 bytes; 0: none is there, since the sequence is stray,
 * truncated, overlong, a surrogate or too large. */
size_t utf8_take(const void *bytes, size_t n, uint32_t *code);

/* Write a code point; its length. */
size_t utf8_put(uint32_t code, uint8_t out[UTF8_BYTES_MAX]);

#endif
