/* The part of the seam through which a run writes: directories, logs that grow, and files that are
 * replaced whole. base/file.h reads inputs. Paths are the host's. Every error has a message that
 * names the path. ERR_IO below is ERR_FULL where the disk is full or the user's quota is used up.
 */
#ifndef PL_WORLD_DISK_H
#define PL_WORLD_DISK_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disk;
struct disk_file;
struct disk_holder;

struct disk_ops {
    /* Make a directory whose parent exists. OK also if the directory exists; *made (may be NULL):
     * it did not. ERR_IO */
    int (*make_dir)(struct disk *d, const char *path, bool *made, struct err *err);
    /* Call fn with the name of each entry, in order of their bytes. ERR_NOT_FOUND: no such
     * directory; ERR_IO */
    int (*list)(struct disk *d, const char *path, void (*fn)(void *user, const char *name),
                void *user, struct err *err);
    int (*remove)(struct disk *d, const char *path, struct err *err); /* ERR_IO */
    /* ERR_IO */
    int (*rename)(struct disk *d, const char *from, const char *to, struct err *err);
    /* Changes of names in it survive a power cut, as far as the file system can promise. ERR_IO */
    int (*sync_dir)(struct disk *d, const char *path, struct err *err);
    int (*free_space)(struct disk *d, const char *path, uint64_t *bytes, struct err *err);

    /* Open for writing: an existing file at its end (`append`), or a new file, which must not
     * exist. ERR_IO, ERR_NOMEM */
    int (*open)(struct disk *d, const char *path, bool append, struct disk_file **out,
                struct err *err);
    /* All of the bytes, or ERR_IO. */
    int (*write)(struct disk_file *f, const void *data, size_t len, struct err *err);
    /* Write over the first `len` bytes of a new file that has as many; later writes continue at its
     * end. ERR_IO */
    int (*rewrite)(struct disk_file *f, const void *data, size_t len, struct err *err);
    /* Cut the file back to its first `len` bytes. ERR_IO */
    int (*truncate)(struct disk_file *f, uint64_t len, struct err *err);
    /* Written data survives a power cut. An error is final. ERR_IO */
    int (*sync)(struct disk_file *f, struct err *err);
    int (*close)(struct disk_file *f, struct err *err); /* f is freed, also after an error */

    /* Lock the file for this process until `unlock`, or until the process ends in any way. The file
     * names its holder. take_over: the present holder loses it. ERR_USAGE another process has it,
     * or may have it: *holder; ERR_IO, ERR_NOMEM */
    int (*lock)(struct disk *d, const char *path, bool take_over, struct disk_file **out,
                struct disk_holder *holder, struct err *err);
    /* A sign of life of the holder, for machines that cannot see its process. If another process
     * has taken the lock over, it is taken again once that process has released it or is dead. */
    void (*touch)(struct disk_file *lock);
    /* Release the lock, and remove the file if it is still this process's. Frees `lock`. */
    void (*unlock)(struct disk_file *lock);
};

/* The holder of a lock. */
struct disk_holder {
    char text[160]; /* "process 4711 on host a, since 2026-11-24 12:03" */
    double silent;  /* s since its last sign of life, where that is all that can be known; < 0: it
                      lives for certain */
};

/* Seconds without a sign of life after which a holder on another machine counts as gone. */
enum { DISK_SILENCE_MAX = 20 };

struct disk {
    const struct disk_ops *ops;
};

/* Make a directory that survives a power cut: its name is synced in the parent directory. OK also
 * if it exists; *made (may be NULL): it did not. ERR_IO */
int disk_keep_dir(struct disk *d, const char *path, bool *made, struct err *err);

/* Ending of the temporary file while `path` is written; users do not use it. The next write of
 * `path` replaces a file that a crash left. */
#define DISK_UNFINISHED ".paceline-new"

/* Replace `path` by these bytes, or leave it as it was: a new file in the same directory, synced,
 * renamed over it, the directory synced. `path` has a directory part. A link is replaced, not
 * followed. ERR_IO, ERR_NOMEM */
int disk_replace(struct disk *d, const char *path, const void *data, size_t len, struct err *err);

/* The same, with the contents that `fill` writes. Errors also those of `fill`. */
int disk_replace_by(struct disk *d, const char *path,
                    int (*fill)(void *user, struct disk_file *file, struct err *err), void *user,
                    struct err *err);

#endif
