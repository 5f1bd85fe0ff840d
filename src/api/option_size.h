/* Structs of options as a program was built with them: shorter than this library's where it was
 * built with older headers, longer where with newer ones (paceline/engine.h). */
#ifndef PL_API_OPTION_SIZE_H
#define PL_API_OPTION_SIZE_H

#include "base/err.h"

#include <stddef.h>

/* Copy the struct of type `type` at `given` to `own`, with zeros for the fields that it lacks. NULL
 * gives zeros. ERR_USAGE: it has no size, or an impossible one; ERR_UNSUPPORTED: a field beyond
 * this library's is not zero */
#define OPTIONS_TAKE(type, own, given, err)                                                       \
    options_take(1 ? (own) : (type *)NULL, sizeof(type), 1 ? (given) : (const type *)NULL, #type, \
                 (err))

int options_take(void *own, size_t known, const void *given, const char *type, struct err *err);

#endif
