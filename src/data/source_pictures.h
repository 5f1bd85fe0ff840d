/* Unlabelled pictures by their paths, JPEG or PNG: label 0, of one class. Opening reads their
 * headers; reading a record decodes it. The hash is over paths, lengths and sizes. */
#ifndef PL_DATA_SOURCE_PICTURES_H
#define PL_DATA_SOURCE_PICTURES_H

#include "data/source.h"

/* `count` (> 0) paths, borrowed as long as the source. `watch` as in source_config.
 * ERR_INPUT naming the file; ERR_NOMEM, ERR_CANCELLED */
int source_pictures_open(const char *const *paths, size_t count, Paceline__Data__Color color,
                         const struct open_watch *watch, struct source **out, struct err *err);

#endif
