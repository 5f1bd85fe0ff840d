/* Arrays of NumPy's, in .npy files, versions 1 to 3 of the format (numpy.lib.format), or in .npz
 * archives: one of values, uint8, float32 or integers, (N, C, H, W), (N, H, W), (N, C) or (N), and
 * one of N labels, of any type of integer. Values are read from the file when they are asked for,
 * or are in memory where the archive is compressed; labels are in memory. */
#ifndef PL_DATA_SOURCE_NPY_H
#define PL_DATA_SOURCE_NPY_H

#include "data/source.h"

/* As source_open_with. The hash covers both headers, the labels, the size of the array of
 * values, and its first and last bytes: it is the same in an archive. */
int source_npy_open(const struct source_config *config, const Paceline__Data__Npy *spec,
                    struct source **out, struct err *err);

#endif
