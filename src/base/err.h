/* An error with its message. The function that detects an error writes the message, which names the
 * object and the place; callers pass the status on and leave the message unchanged. */
#ifndef PL_BASE_ERR_H
#define PL_BASE_ERR_H

#include "base/status.h"

enum { ERR_TEXT_MAX = 512 };

struct err {
    int status;
    char text[ERR_TEXT_MAX];
};

/* Write the message (cut at ERR_TEXT_MAX) and return `status`, so that a failing function ends in
 * `return err_set(err, ERR_INPUT, "%s: ...", path)`. A message is one line: control characters, as
 * names in files may have them, become '?'. `err` may be NULL. */
int err_set(struct err *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "prefix: " before the message, for a caller that alone knows the place. */
void err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Append "; remedy" to the message, for a caller that alone knows it. */
void err_remedy(struct err *err, const char *remedy);

#endif
