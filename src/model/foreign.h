/* Files of other tools, where a net or weights are asked for: recognised by their first bytes, so
 * that they are refused by name. */
#ifndef PL_MODEL_FOREIGN_H
#define PL_MODEL_FOREIGN_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* OK when the bytes of the file `path` may be what is asked for; else ERR_UNSUPPORTED, naming what
 * they are and what to give instead. */
int foreign_check(const char *path, const uint8_t *bytes, size_t len, struct err *err);

/* The same for a path that may be a folder. */
int foreign_check_folder(const char *path, struct err *err);

#endif
