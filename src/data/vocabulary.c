#include "data/vocabulary.h"

#include <stdlib.h>
#include <string.h>

const char *vocabulary_read(struct vocabulary *v, const char *text)
{
    uint32_t code, above = 0;
    size_t n = strlen(text);
    for (size_t at = 0, length; at < n; at += length) {
        length = utf8_take(text + at, n - at, &code);
        if (length == 0)
            return "is not UTF-8";
        if (code < above)
            return "has its characters not in ascending order of code points, or one twice";
        vocabulary_add(v, code);
        above = code + 1;
    }
    return NULL;
}

static uint32_t count_bits(uint64_t word)
{
    return (uint32_t)__builtin_popcountll(word);
}

void vocabulary_number(struct vocabulary *v)
{
    v->n = 0;
    for (size_t i = 0; i < v->words; i++) {
        v->before[i] = v->n;
        v->n += count_bits(v->has[i]);
    }
}

uint32_t vocabulary_id(const struct vocabulary *v, uint32_t code)
{
    uint64_t below = (UINT64_C(1) << code % 64) - 1;
    return v->before[code / 64] + count_bits(v->has[code / 64] & below);
}

char *vocabulary_write(const struct vocabulary *v)
{
    char *text = calloc(v->n + 1, UTF8_BYTES_MAX);
    size_t used = 0;
    for (uint32_t word = 0; text && word < v->words; word++)
        for (uint64_t bits = v->has[word]; bits > 0; bits &= bits - 1)
            used += utf8_put(word * 64 + (uint32_t)__builtin_ctzll(bits), (uint8_t *)text + used);
    return text;
}
