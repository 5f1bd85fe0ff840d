#include "job/text_lex.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

void text_lex_init(struct text_lex *lex, const char *text, size_t len)
{
    *lex = (struct text_lex){.text = text, .len = len};
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        lex->end = 3; /* a byte order mark, as some editors leave */
    text_lex_next(lex);
}

static size_t skip_blank(const struct text_lex *lex, size_t at)
{
    while (at < lex->len) {
        char c = lex->text[at];
        if (c == '#') {
            const char *eol = memchr(lex->text + at, '\n', lex->len - at);
            at = eol ? (size_t)(eol - lex->text) : lex->len;
        } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v') {
            at++;
        } else {
            break;
        }
    }
    return at;
}

static size_t number_end(const struct text_lex *lex, size_t at)
{
    bool hex = at + 1 < lex->len && lex->text[at] == '0' && (lex->text[at + 1] | 0x20) == 'x';
    while (at < lex->len) {
        char c = lex->text[at];
        if (!is_digit(c) && !is_letter(c) && c != '.')
            break;
        at++;
        bool exponent = !hex && (c | 0x20) == 'e';
        if (exponent && at < lex->len && (lex->text[at] == '+' || lex->text[at] == '-'))
            at++;
    }
    return at;
}

static void lex_string(struct text_lex *lex)
{
    char quote = lex->text[lex->at];
    size_t at = lex->at + 1;
    while (at < lex->len && lex->text[at] != quote) {
        char c = lex->text[at];
        if (c == '\n' || c == '\0')
            break;
        bool escaped = c == '\\' && at + 1 < lex->len && lex->text[at + 1] != '\n';
        at += escaped ? 2 : 1;
    }
    bool closed = at < lex->len && lex->text[at] == quote;
    lex->kind = closed ? TEXT_STRING : TEXT_BAD;
    lex->why = closed ? NULL : "a string is not closed on its line; write the quote at its end";
    lex->end = closed ? at + 1 : at;
}

void text_lex_next(struct text_lex *lex)
{
    size_t at = skip_blank(lex, lex->end);
    lex->at = at;
    lex->why = NULL;
    if (at == lex->len) {
        lex->kind = TEXT_END;
        lex->end = at;
        return;
    }
    char c = lex->text[at];
    bool dotted = c == '.' && at + 1 < lex->len && is_digit(lex->text[at + 1]);
    if (is_letter(c)) {
        lex->kind = TEXT_WORD;
        while (at < lex->len && (is_letter(lex->text[at]) || is_digit(lex->text[at])))
            at++;
        lex->end = at;
    } else if (is_digit(c) || dotted) {
        lex->kind = TEXT_NUMBER;
        lex->end = number_end(lex, at);
    } else if (c == '"' || c == '\'') {
        lex_string(lex);
    } else {
        bool known = c != '\0' && strchr(":{}<>[],;-", c);
        lex->kind = known ? TEXT_MARK : TEXT_BAD;
        lex->end = at + 1;
    }
}

bool text_lex_is(const struct text_lex *lex, char c)
{
    return lex->kind == TEXT_MARK && lex->text[lex->at] == c;
}

void text_lex_place(const struct text_lex *lex, size_t at, size_t *line, size_t *column)
{
    *line = 1;
    *column = 1;
    size_t start = lex->len >= 3 && memcmp(lex->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (size_t i = start; i < at; i++) {
        if (lex->text[i] == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)lex->text[i] & 0xc0) != 0x80) {
            ++*column;
        }
    }
}

static int digit_value(char c)
{
    if (is_digit(c))
        return c - '0';
    char low = (char)(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
}

/* Up to `most` digits of `base` from *at; false when there is none or the value is over 255. */
static bool escape_digits(const struct text_lex *lex, size_t *at, int base, int most, uint8_t *out)
{
    int value = 0, n = 0;
    while (n < most && *at < lex->end - 1 && digit_value(lex->text[*at]) < base) {
        value = value * base + digit_value(lex->text[*at]);
        ++*at;
        n++;
    }
    *out = (uint8_t)value;
    return n > 0 && value <= 255;
}

/* One escape, its backslash at *at. */
static bool read_escape(const struct text_lex *lex, size_t *at, uint8_t *out)
{
    static const char names[] = "abfnrtv\\'\"?";
    static const char means[] = "\a\b\f\n\r\t\v\\'\"?";
    char c = lex->text[++*at];
    const char *name = c ? strchr(names, c) : NULL;
    if (name) {
        *out = (uint8_t)means[name - names];
        ++*at;
        return true;
    }
    if (c == 'x' || c == 'X') {
        ++*at;
        return escape_digits(lex, at, 16, 2, out);
    }
    return escape_digits(lex, at, 8, 3, out);
}

bool text_lex_unescape(const struct text_lex *lex, struct buf *out, size_t *bad)
{
    size_t at = lex->at + 1;
    while (at < lex->end - 1) {
        size_t start = at;
        uint8_t c = (uint8_t)lex->text[at];
        if (c != '\\') {
            at++;
        } else if (!read_escape(lex, &at, &c)) {
            *bad = start;
            return false;
        }
        buf_put_u8(out, c);
    }
    return true;
}
