/* Tokens of protobuf text. A token is a range of the text; where it stands (line, column) is worked
 * out only when a message needs it. Internal to job. */
#ifndef PL_JOB_TEXT_LEX_H
#define PL_JOB_TEXT_LEX_H

#include "base/bytes.h"

#include <stddef.h>

enum text_kind {
    TEXT_END,
    TEXT_WORD,   /* a name: letters, digits, underscores */
    TEXT_NUMBER, /* starts with a digit or a dot and a digit; not yet checked */
    TEXT_STRING, /* one literal with its quotes; escapes not yet checked */
    TEXT_MARK,   /* one character */
    TEXT_BAD,    /* `why` is the error; NULL: a character that begins no token */
};

struct text_lex {
    const char *text; /* borrowed */
    size_t len;
    /* The current token. */
    enum text_kind kind;
    size_t at, end;
    const char *why;
};

/* Borrow the text and stand on its first token. */
void text_lex_init(struct text_lex *lex, const char *text, size_t len);
void text_lex_next(struct text_lex *lex);

/* The current token is the mark `c`. */
bool text_lex_is(const struct text_lex *lex, char c);

/* Line and column of the byte `at`, both from 1; a column is a character of UTF-8. */
void text_lex_place(const struct text_lex *lex, size_t at, size_t *line, size_t *column);

/* Append the meaning of the current literal to `out`. False when an escape is wrong; `*bad` is then
 * where it stands. */
bool text_lex_unescape(const struct text_lex *lex, struct buf *out, size_t *bad);

#endif
