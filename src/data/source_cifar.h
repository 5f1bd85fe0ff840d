/* The binary versions of CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): records without a header, one
 * after another,
 *
 *   CIFAR-10   label · 3072 bytes of pixels
 *   CIFAR-100  coarse label · fine label · 3072 bytes of pixels
 *
 * the pixels as planes of red, green and blue, 32 x 32, rows from the top. The files are held in
 * memory; the hash is over all bytes. */
#ifndef PL_DATA_SOURCE_CIFAR_H
#define PL_DATA_SOURCE_CIFAR_H

#include "data/source.h"

enum cifar_kind { CIFAR_10, CIFAR_100 };

/* A file, or of a folder the files that config->role asks for: data_batch_1.bin .. data_batch_5.bin
 * and test_batch.bin; train.bin and test.bin. ERR_INPUT with file and numbers; ERR_NOMEM,
 * ERR_CANCELLED. */
int source_cifar_open(const struct source_config *config, const Paceline__Data__Cifar *spec,
                      enum cifar_kind kind, struct source **out, struct err *err);

#endif
