/* Read-only inputs, whole: job files, data sets, models. They cost no virtual time, so both worlds
 * read them here; what a run writes goes through the world's disk. */
#ifndef PL_BASE_FILE_H
#define PL_BASE_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct file_bytes {
    uint8_t *data; /* owned; one zero byte follows the last, so that text may be parsed in place */
    size_t len;
};

/* Read the regular file `path` whole; gzip is unpacked when `path` holds it. At most `max` bytes
 * unpacked are accepted. Released by file_release.
 *
 * ERR_INPUT  missing, not a regular file, unreadable, longer than `max`, or a broken gzip stream
 * ERR_NOMEM */
int file_read(const char *path, size_t max, struct file_bytes *out, struct err *err);
void file_release(struct file_bytes *bytes);

/* `path` itself when absolute, else taken from the folder that holds the file `beside`. Written to
 * `out`; ERR_INPUT when it does not fit. */
int file_resolve(const char *beside, const char *path, char *out, size_t size, struct err *err);

#endif
