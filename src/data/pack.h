/* Writes the records of a source into shards (data/shard_format.h): pictures as their files are,
 * all others as values. */
#ifndef PL_DATA_PACK_H
#define PL_DATA_PACK_H

#include "data/names.h"
#include "data/source.h"
#include "world/disk.h"

enum { PACK_SHARDS_MAX = 100000 };

struct pack_config {
    struct disk *disk;
    const char *prefix; /* with its folder; shards are PREFIX-00000.shard and so on */
    /* A shard ends with the record by which its records have so many bytes; > 0. */
    uint64_t shard_bytes;
    const struct names *names; /* of classes; NULL: none */
    bool replace;              /* shards of that prefix that are there already */
    const struct open_watch *watch;
};

struct pack_result {
    size_t records;
    uint32_t shards;
    uint64_t bytes; /* of the files */
};

/* Each shard is there whole or not at all. With `replace` the shards of that prefix with higher
 * numbers are removed. After an error no shard is left that this call wrote.
 *
 * ERR_INPUT      a shard is there already; a record cannot be read; records are of several sizes
 *                and no pictures; more than PACK_SHARDS_MAX shards
 * ERR_CANCELLED  by the watch, in stage "records"
 * ERR_IO, ERR_FULL, ERR_NOMEM */
int pack_records(const struct source *source, const struct pack_config *config,
                 struct pack_result *out, struct err *err);

#endif
