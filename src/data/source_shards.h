/* Records in shards, Paceline's own format (data/shard_format.h). Opening reads the ends of the
 * files. Of pictures 8 bytes a record stay in memory, and of labels 1 to 4. Reading a record
 * reads the block that holds it and compares the block's checksum: a changed byte is an error
 * (ERR_IO), by the file and the place, and never a wrong value. */
#ifndef PL_DATA_SOURCE_SHARDS_H
#define PL_DATA_SOURCE_SHARDS_H

#include "data/source.h"

struct names;

/* As source_open_with. All shards have records of the same kind. The hash covers all bytes of the
 * records, by the checksums of their blocks. */
int source_shards_open(const struct source_config *config, const Paceline__Data__Shards *spec,
                       struct source **out, struct err *err);

/* The names of classes that the first shard of the list has; none: OK. `remote` as in
 * source_config. ERR_INPUT, ERR_NOMEM */
int shards_names(const char *shards, struct remote *remote, struct names *out, struct err *err);

#endif
