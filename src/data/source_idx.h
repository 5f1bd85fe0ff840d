/* The IDX format of MNIST and Fashion-MNIST: numbers big-endian, plain or gzip.
 *
 *   images   0x00000803 · count · rows · cols · count*rows*cols bytes, row-major
 *   labels   0x00000801 · count · count bytes
 *
 * Both files are held in memory, unpacked; the hash is over all bytes. */
#ifndef PL_DATA_SOURCE_IDX_H
#define PL_DATA_SOURCE_IDX_H

#include "data/source.h"

/* Open both files; records are (1, rows, cols), classes is the largest label + 1.
 * `watch` as in source_config. ERR_INPUT with file and numbers; ERR_NOMEM, ERR_CANCELLED. */
int source_idx_open(const Paceline__Data__Idx *spec, const struct open_watch *watch,
                    struct source **out, struct err *err);

#endif
