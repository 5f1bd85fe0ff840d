/* The reader of protobuf text, as text_parse and text_set share it. Internal to job. */
#ifndef PL_JOB_TEXT_READ_H
#define PL_JOB_TEXT_READ_H

#include "base/err.h"
#include "job/text_lex.h"

#include <protobuf-c/protobuf-c.h>

/* A message that is being read, and those that it lies in. */
struct text_block {
    const struct text_block *above;
    const ProtobufCMessageDescriptor *type;
    const char *name; /* of its field; NULL: the file */
    size_t at;        /* of its `{` */
};

struct text_reader {
    struct text_lex lex;
    const char *name; /* of the file; NULL when the text is the value of `path` alone */
    const char *path;
    const struct text_block *block; /* the innermost; NULL: no file is read */
    unsigned depth;
    size_t taken; /* bytes of the messages made so far, at most TEXT_MEMORY_MAX */
    struct err *err;
};

/* Write the message, the place of byte `at` or the path before it; returns ERR_INPUT. */
int text_fail(const struct text_reader *r, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Count `bytes` more of memory, for the value that the current token begins. ERR_INPUT: too
 * many. */
int text_take(struct text_reader *r, size_t bytes);

/* Read the value of one field from the current token on, to the first token after it. The field is
 * marked as set; nothing may have set it before unless it is repeated. */
int text_read_field(struct text_reader *r, ProtobufCMessage *msg,
                    const ProtobufCFieldDescriptor *field);

/* Read a string, or the value of a number, word or flag, into `slot`, which is written on success
 * only. */
int text_read_scalar(struct text_reader *r, const ProtobufCMessageDescriptor *type,
                     const ProtobufCFieldDescriptor *field, void *slot);

/* "expected WANTED, not TOKEN", the token running from `at` to the end of the current one. */
int text_fail_value(const struct text_reader *r, const ProtobufCMessageDescriptor *type,
                    const ProtobufCFieldDescriptor *field, size_t at, const char *wanted);

/* Quote bytes of the input for a message: shortened, without control characters. */
const char *text_quote(const char *s, size_t n, char out[48]);

#endif
