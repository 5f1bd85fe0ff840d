/* Recognises files of other tools by their first bytes, where a net or weights are expected, so
 * that they are refused by name. */
#ifndef PL_MODEL_FOREIGN_H
#define PL_MODEL_FOREIGN_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* OK if the bytes of the file `path` may be of the expected kind; else ERR_UNSUPPORTED, with their
 * kind and the remedy; ERR_INPUT: it is a model in ONNX by another name. */
int foreign_check(const char *path, const uint8_t *bytes, size_t len, struct err *err);

/* The same for a path that may be a folder. */
int foreign_check_folder(const char *path, struct err *err);

#endif
