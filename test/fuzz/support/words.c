/* Mutations of text, for the fuzzers of text: a number becomes one that is often a limit, a word or
 * a string becomes another of the same input. Every second mutation changes bytes. */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

enum { TOKENS_MAX = 512 };

enum kind { NUMBER, WORD, STRING };

struct token {
    enum kind kind;
    size_t at, len;
};

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed);

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(uint8_t c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool continues_word(enum kind kind, uint8_t c)
{
    return is_digit(c) || is_letter(c) || (kind == NUMBER && (c == '.' || c == '-'));
}

static size_t string_end(const uint8_t *text, size_t n, size_t from)
{
    size_t end = from + 1;
    while (end < n && text[end] != text[from])
        end++;
    return end < n ? end + 1 : n;
}

static size_t split_text(const uint8_t *text, size_t n, struct token *out)
{
    size_t count = 0, end;
    for (size_t at = 0; at < n && count < TOKENS_MAX; at = end) {
        bool string = text[at] == '\'' || text[at] == '"';
        enum kind kind = string ? STRING : is_letter(text[at]) ? WORD : NUMBER;
        end = at + 1;
        if (string)
            end = string_end(text, n, at);
        else if (kind == NUMBER && !is_digit(text[at]) && text[at] != '-')
            continue;
        while (!string && end < n && continues_word(kind, text[end]))
            end++;
        out[count++] = (struct token){kind, at, end - at};
    }
    return count;
}

static uint32_t draw_below(uint32_t *state, size_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((*state >> 8) % n);
}

/* The replacement of a token; 0 characters: none was found. */
static size_t choose_word(const uint8_t *text, const struct token *token, size_t count,
                          size_t which, uint32_t *state, char out[128])
{
    static const char *const numbers[] = {
        "0",     "1",     "2",     "3",          "4",          "5",          "7",
        "8",     "-1",    "-2",    "16",         "255",        "256",        "1000",
        "65535", "65536", "1e6",   "1000000007", "2147483647", "2147483648", "4294967295",
        "0.5",   "1e-9",  "3e38",  "1e99",       "-0.25",      "inf",        "9223372036854775807",
        "nan",   "-1e30", "100000"};
    if (token[which].kind == NUMBER) {
        const char *number = numbers[draw_below(state, sizeof numbers / sizeof numbers[0])];
        memcpy(out, number, strlen(number));
        return strlen(number);
    }
    for (int tries = 0; tries < 8; tries++) {
        const struct token *other = &token[draw_below(state, count)];
        if (other->kind == token[which].kind && other->len < 128) {
            memcpy(out, text + other->at, other->len);
            return other->len;
        }
    }
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    static struct token token[TOKENS_MAX];
    char with[128];
    uint32_t state = seed;
    size_t count = seed % 2 ? split_text(bytes, n, token) : 0;
    if (count == 0)
        return LLVMFuzzerMutate(bytes, n, most);
    size_t which = draw_below(&state, count);
    for (int tries = 0; tries < 4 && token[which].kind != NUMBER; tries++)
        which = draw_below(&state, count);
    size_t len = choose_word(bytes, token, count, which, &state, with);
    const struct token *old = &token[which];
    if (len == 0 || n - old->len + len > most)
        return LLVMFuzzerMutate(bytes, n, most);
    memmove(bytes + old->at + len, bytes + old->at + old->len, n - old->at - old->len);
    memcpy(bytes + old->at, with, len);
    return n - old->len + len;
}
