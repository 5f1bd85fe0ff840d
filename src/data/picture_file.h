/* A picture that is a file of its own: opened, looked at, and named in messages. */
#ifndef PL_DATA_PICTURE_FILE_H
#define PL_DATA_PICTURE_FILE_H

#include "base/file.h"
#include "data/picture.h"

/* Its name in messages is fit to be printed, here and below. ERR_INPUT: missing, not a regular
 * file, unreadable, or of more than 2^28 bytes */
int picture_file_open(const char *path, struct file_open *file, struct err *err);

/* Look at its headers: the first *n bytes, PICTURE_HEAD at most, into `head`, and its length.
 * ERR_INPUT */
int picture_file_probe(const char *path, uint8_t head[PICTURE_HEAD], size_t *n, uint64_t *len,
                       struct picture *out, struct err *err);

/* Put the file's name before the message of `rc`, which is returned. */
int picture_file_name(const char *path, int rc, struct err *err);

#endif
