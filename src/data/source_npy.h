/* Arrays in NumPy's .npy files, versions 1 to 3 of the format (numpy.lib.format): one of values,
 * uint8 or float32, (N, C, H, W), (N, H, W) or (N, C), and one of N labels, of any type of integer.
 * Values are read from the file when they are asked for; labels are in memory. */
#ifndef PL_DATA_SOURCE_NPY_H
#define PL_DATA_SOURCE_NPY_H

#include "data/source.h"

/* As source_open_with. The hash covers both headers, the labels, the size of the file of values,
 * and its first and last bytes. */
int source_npy_open(const struct source_config *config, const Paceline__Data__Npy *spec,
                    struct source **out, struct err *err);

#endif
