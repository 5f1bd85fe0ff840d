/* The records of a zip's field: those of a source, seen through the maps of its own `Data` and, in
 * a process that caches, behind the cache, which keeps them as they were before the maps. */
#ifndef PL_DATA_SOURCE_FIELD_H
#define PL_DATA_SOURCE_FIELD_H

#include "data/source.h"

/* Open what `spec` names, with its maps. A record with a damaged head is an error whatever
 * config->bad says: records of one number belong together, so none may be left out here.
 * Errors as source_open_with and maps_init. */
int source_field_open(const struct source_config *config, const Paceline__Data *spec,
                      struct source **out, struct err *err);

/* The source behind maps and cache: `source` itself where there are neither. */
const struct source *source_field_base(const struct source *source);

#endif
