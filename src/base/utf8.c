#include "base/utf8.h"

size_t utf8_take(const void *bytes, size_t n, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* of so many bytes */
    const uint8_t *at = bytes;
    if (at[0] < 0x80) {
        *code = at[0];
        return 1;
    }
    size_t length = at[0] < 0xc0 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf8 ? 4 : 0;
    if (length == 0 || length > n)
        return 0;
    uint32_t value = at[0] & (0xffu >> (length + 1));
    for (size_t k = 1; k < length; k++) {
        if ((at[k] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (at[k] & 0x3f);
    }
    if (value < least[length] || value >= UTF8_CODES || (value >= 0xd800 && value < 0xe000))
        return 0;
    *code = value;
    return length;
}

size_t utf8_put(uint32_t code, uint8_t out[UTF8_BYTES_MAX])
{
    static const uint8_t mark[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t k = length - 1; k > 0; k--, code >>= 6)
        out[k] = (uint8_t)(0x80 | (code & 0x3f));
    out[0] = (uint8_t)(mark[length] | code);
    return length;
}
