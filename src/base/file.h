/* Reads inputs: job files, data sets, models. Reading costs no virtual time, so both worlds use
 * this file; a run writes through the world's disk. */
#ifndef PL_BASE_FILE_H
#define PL_BASE_FILE_H

#include "base/open_watch.h"
#include "base/remote.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_bytes {
    uint8_t *data; /* owned; a zero byte follows, so that text may be parsed in place */
    size_t len;
};

/* Read the regular file `path` whole; gzip is unpacked when `path` holds it. At most `max` bytes
 * unpacked are accepted. Released by file_release.
 *
 * ERR_INPUT  missing, not a regular file, unreadable, longer than `max`, or a broken gzip stream
 * ERR_NOMEM */
int file_read(const char *path, size_t max, struct file_bytes *out, struct err *err);

/* The same with a watch (may be NULL) in stage "bytes", those of the file on disk. Also
 * ERR_CANCELLED */
int file_read_watched(const char *path, size_t max, const struct open_watch *watch,
                      struct file_bytes *out, struct err *err);

/* The same for at most the first `n` unpacked bytes; the rest is not read. */
int file_read_begin(const char *path, size_t n, const struct open_watch *watch,
                    struct file_bytes *out, struct err *err);
void file_release(struct file_bytes *bytes);

/* An open regular file, whose parts any thread may read; it is not unpacked. */
struct file_open {
    int fd;
    uint64_t len;               /* when it was opened */
    uint64_t modified;          /* the time of its last change, in ns, by the file system */
    struct remote_file *remote; /* borrowed, the file instead of `fd`; NULL: it is local */
};

/* ERR_INPUT: missing, not a regular file, unreadable */
int file_open(const char *path, struct file_open *out, struct err *err);
void file_close(struct file_open *file);

/* The `n` bytes from `offset` on. ERR_IO without a message: they are not there any more, or cannot
 * be read. offset + n <= file->len */
int file_part(const struct file_open *file, uint64_t offset, void *out, size_t n);

/* A hint that these bytes will be read soon: the system begins to read them, and the call does not
 * wait. Without effect on a remote file. */
void file_prefetch(const struct file_open *file, uint64_t offset, size_t n);

/* Is `path` a folder, or a regular file? Links are followed. */
bool file_is_folder(const char *path);
bool file_is_regular(const char *path);

/* The type of the name itself, a link and not its target. */
enum file_type { FILE_IS_NONE, FILE_IS_REGULAR, FILE_IS_OTHER };
enum file_type file_type(const char *path);

/* The names in a folder, in the order of their bytes; those that begin with a dot are left out.
 * Released by file_names_release. */
struct file_names {
    char **at;
    size_t count;
};

/* ERR_INPUT: no folder, unreadable, or more than `max` names; ERR_NOMEM */
int file_list(const char *folder, size_t max, struct file_names *out, struct err *err);
void file_names_release(struct file_names *names);

/* The real path of `path`, without links, dots or a slash at its end. ERR_INPUT: there is nothing;
 * it does not fit */
int file_target(const char *path, char *out, size_t size, struct err *err);

/* The folder `path` by its one whole name, without links, dots or a slash at its end.
 * ERR_INPUT: there is none; it does not fit */
int file_canonical(const char *path, char *out, size_t size, struct err *err);

/* Check that `path`, after all links, is the folder `root` (canonical) or inside of it, before a
 * path that another node has named is opened. `root` NULL: any path is allowed. ERR_INPUT naming
 * both, whether the path exists or not; or a missing path inside of it */
int file_check_under(const char *root, const char *path, struct err *err);

/* The working directory with a slash at its end, for file_resolve. ERR_IO: there is none, or it
 * does not fit */
int file_here(char *out, size_t size, struct err *err);

/* `path` itself when absolute, else taken from the folder that holds the file `beside`. Written to
 * `out`; ERR_INPUT when it does not fit. */
int file_resolve(const char *sibling, const char *path, char *out, size_t size, struct err *err);

#endif
