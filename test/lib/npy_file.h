/* Arrays in files of NumPy's, version 1 of its format. */
#ifndef PL_LIB_NPY_FILE_H
#define PL_LIB_NPY_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NPY_HEADER_BYTES = 128 };

/* `descr` as "|u1", `shape` as "(3, 2)"; `bytes` of values. */
static inline void npy_write(const char *folder, const char *name, const char *descr,
                             const char *shape, const void *values, size_t bytes)
{
    char path[256], header[NPY_HEADER_BYTES + 1];
    int n = snprintf(header + 10, sizeof header - 10,
                     "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || n < 0 || n >= NPY_HEADER_BYTES - 11)
        abort();
    memcpy(header, "\x93NUMPY\1\0\x76\0", 10);
    memset(header + 10 + n, ' ', (size_t)(NPY_HEADER_BYTES - 11 - n));
    header[NPY_HEADER_BYTES - 1] = '\n';
    if (fwrite(header, 1, NPY_HEADER_BYTES, f) != NPY_HEADER_BYTES ||
        fwrite(values, 1, bytes, f) != bytes || fclose(f) != 0)
        abort();
}

#endif
