/* The index of a TAR archive of records: all that opening finds by a scan of it, in a file next to
 * it, ARCHIVE.index. Numbers are little-endian.
 *
 *   header    "PLTARIDX", the version (u64), and of the archive its length, the time of its last
 *             change and the hash of what its labels are called (u64 each), the number of records
 *             (u64)
 *   records   as struct tar_record, one after another
 *   checksum  of all in front of it (u64)
 *
 * An index is used only for the archive that it was made of, by length and time of change; else
 * opening scans the archive. A record that is read is compared with its index in any case. */
#ifndef PL_DATA_TAR_INDEX_H
#define PL_DATA_TAR_INDEX_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"

#include <stddef.h>
#include <stdint.h>

#define TAR_INDEX_ENDING ".index"

struct tar_record {
    uint64_t body;  /* of the picture, in its archive */
    uint64_t hash;  /* of the picture's name and first bytes */
    uint32_t bytes; /* of the picture */
    uint32_t label;
    uint32_t check; /* of the header in front of the body */
    uint16_t H, W;
};

_Static_assert(sizeof(struct tar_record) == 32, "a record of an index");

/* Append the index of an open archive to `out`. `labels` is the hash of what labels are called. */
void tar_index_write(const struct file_open *archive, uint64_t labels,
                     const struct tar_record *record, size_t count, struct buf *out);

/* The records in the index of the archive at `path`; *record is the caller's. NULL: there is no
 * index, or none that may be opened under `root`.
 * ERR_INPUT: it does not fit the archive, or is damaged; ERR_NOMEM */
int tar_index_read(const char *root, const char *path, const struct file_open *archive,
                   uint64_t labels, struct tar_record **record, size_t *count, struct err *err);

#endif
