/* A set of characters, numbered from 0 in ascending order of code points. */
#ifndef PL_DATA_VOCABULARY_H
#define PL_DATA_VOCABULARY_H

#include "base/utf8.h"

#include <stdbool.h>

enum { VOCABULARY_MAX = 65536, VOCABULARY_WORDS = UTF8_CODES / 64 };

/* 209 KB; empty while it is zero. */
struct vocabulary {
    uint64_t has[VOCABULARY_WORDS];    /* a bit for each code point */
    uint32_t before[VOCABULARY_WORDS]; /* those in earlier words, by vocabulary_number */
    uint32_t n;                        /* likewise, in all */
    uint32_t words;                    /* the further ones have no bit */
};

static inline bool vocabulary_has(const struct vocabulary *v, uint32_t code)
{
    return v->has[code / 64] >> code % 64 & 1;
}

static inline void vocabulary_add(struct vocabulary *v, uint32_t code)
{
    uint32_t word = code / 64;
    v->has[word] |= UINT64_C(1) << code % 64;
    v->words = word < v->words ? v->words : word + 1;
}

/* Add the characters of `text`. NULL, or why it is no vocabulary's. */
const char *vocabulary_read(struct vocabulary *v, const char *text);

/* Number all that were added. */
void vocabulary_number(struct vocabulary *v);

/* The number of a character that it has. */
uint32_t vocabulary_id(const struct vocabulary *v, uint32_t code);

/* All characters in their order, for vocabulary_read; owned by the caller. NULL: no memory */
char *vocabulary_write(const struct vocabulary *v);

#endif
