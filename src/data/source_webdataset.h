/* Pictures with labels in TAR archives, as WebDataset lays them out. The members of one key that
 * follow each other are a record; the key is the path up to the first dot of the last name:
 *
 *   dogs/rex.jpg    the picture: jpg, jpeg or png, in any case
 *   dogs/rex.cls    the label, a decimal number
 *   dogs/rex.json   with label_key, the label in place of .cls (label_json.h)
 *   dogs/rex.txt    any other: ignored, and a key that has no picture and no label is no record
 *
 * Opening reads the headers of the archives, the labels and the first bytes of each picture, and
 * keeps 24 bytes a record. Reading a record opens its archive and compares the picture's header, so
 * that no more files are open than threads read.
 *
 * Where an archive has an index (tar_index.h), opening reads that instead.
 *
 * An archive that is truncated is an error, since nobody knows how many records are missing; a
 * record of which the picture or the label is missing, twice there or broken is a bad record, and
 * so is a damaged header that other headers follow. */
#ifndef PL_DATA_SOURCE_WEBDATASET_H
#define PL_DATA_SOURCE_WEBDATASET_H

#include "base/bytes.h"
#include "data/source.h"

/* As source_open_with. The hash covers names, labels, lengths and the first PICTURE_HEAD bytes of
 * the pictures, in their order; the archives' names and other members are not part of it. */
int source_webdataset_open(const struct source_config *config,
                           const Paceline__Data__WebDataset *spec, struct source **out,
                           struct err *err);

/* Takes the index of each archive. */
struct tar_indexer {
    int (*write)(void *user, const char *archive, const struct buf *index, struct err *err);
    void *user;
};

/* Scan the archives, whether they have an index or not. As source_webdataset_open; ERR_INPUT: an
 * archive is a URL, too, and errors of `write`. */
int source_webdataset_index(const struct source_config *config,
                            const Paceline__Data__WebDataset *spec,
                            const struct tar_indexer *indexer, struct err *err);

#endif
