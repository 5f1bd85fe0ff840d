/* An array in a file of NumPy's: a .npy file, or a member of a .npz archive, which numpy.savez and
 * numpy.savez_compressed write. Such a path is FILE.npz:NAME. */
#ifndef PL_DATA_NPY_ARRAY_H
#define PL_DATA_NPY_ARRAY_H

#include "base/file.h"
#include "data/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct npy {
    const char *path;
    struct file_open file;
    bool open;
    uint64_t start, len; /* of the array in the file: all of it, or a member of an archive */
    uint8_t *unpacked;   /* a compressed member's bytes; NULL: they are read from the file */
    char kind;           /* 'u', 'i', 'f', 'b' as in the type's name */
    size_t bytes;        /* of a value */
    size_t dims, dim[SHAPE_DIMS_MAX];
    uint64_t begin; /* of the values, in the array's bytes, which they fill */
    uint64_t hash;  /* of the header */
};

/* Open the array and check its header. `path` is borrowed. npy_close releases it, also after an
 * error. Of the config, `root` and `watch` are used. A compressed member is unpacked, if its header
 * promises as many bytes as the archive does; any other is read where it lies.
 * ERR_INPUT by name: missing, truncated, damaged, an array of objects, by columns, or in another
 * byte order; ERR_UNSUPPORTED: a later version of a format; ERR_NOMEM; ERR_CANCELLED */
int npy_open(const struct source_config *config, const char *path, struct npy *npy,
             struct err *err);
void npy_close(struct npy *npy);

/* `n` bytes of the array (offset + n <= npy->len), from any thread. ERR_IO without a message: they
 * cannot be read any more. */
int npy_part(const struct npy *npy, uint64_t offset, void *out, size_t n);

#endif
