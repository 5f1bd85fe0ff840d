/* Files of other machines, named by URLs and read by ranges. Core reads them through this table and
 * knows no protocol. */
#ifndef PL_BASE_REMOTE_H
#define PL_BASE_REMOTE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An open file; an implementation begins its own structure with it. */
struct remote_file {
    const struct remote_ops *ops;
    uint64_t len;
};

/* A client, which opens files; likewise. */
struct remote {
    const struct remote_ops *ops;
};

/* From any thread. Messages name the URL without its secrets. */
struct remote_ops {
    /* The file must have this length and content as long as it is open. ERR_INPUT: it is not there,
     * or cannot be read by ranges; ERR_NOMEM */
    int (*open)(struct remote *remote, const char *url, struct remote_file **out, struct err *err);
    /* The `n` bytes from `offset` on, offset + n <= file->len. ERR_IO with offset and cause: they
     * cannot be read, or the file has changed; ERR_NOMEM */
    int (*read)(struct remote_file *file, uint64_t offset, void *out, size_t n, struct err *err);
    void (*close)(struct remote_file *file);
};

/* Begins with http:// or https://? */
bool remote_is_url(const char *path);

/* Paths with commas between as they may be shown: of a URL, user and password and all behind its
 * `?` become ***. Truncated where they do not fit. Returns `out`. */
const char *remote_shown(const char *paths, char *out, size_t room);

struct file_open;

/* As file_part, with a message: `status` names `path` where the file is local, and the URL, the
 * offset and the cause where it is remote. Returns `status` or ERR_NOMEM. */
int remote_part(const struct file_open *file, const char *path, uint64_t offset, void *out,
                size_t n, int status, struct err *err);

#endif
