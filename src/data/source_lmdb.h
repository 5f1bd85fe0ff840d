/* A database of Caffe's Datums in LMDB, in the order of keys: bytes, floats, or pictures as files.
 * Opening reads each record's head and label, not its pixels; reading one is a read from the file.
 * The hash is over keys, lengths, labels and the first PICTURE_HEAD bytes of each record. */
#ifndef PL_DATA_SOURCE_LMDB_H
#define PL_DATA_SOURCE_LMDB_H

#include "data/source.h"

/* The folder that holds data.mdb, or that file. A LevelDB is refused by name.
 * ERR_INPUT with record and key; ERR_NOMEM, ERR_CANCELLED */
int source_lmdb_open(const struct source_config *config, const Paceline__Data__Lmdb *spec,
                     struct source **out, struct err *err);

#endif
