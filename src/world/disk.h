/* The part of the seam that is what a run writes: directories, logs that grow, files that are
 * replaced whole. Read-only inputs are base/file.h's.
 *
 * Paths are the host's. Every function gives a message naming the path. ERR_IO below is ERR_FULL
 * where the disk is full or the user's quota is used up. */
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
    /* Make a directory whose parent exists; fine when it is there. *made: it was not; may be NULL.
     * ERR_IO */
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

    /* Open for writing: at the end of what is there (`append`), or a new file, which must not
     * exist. ERR_IO, ERR_NOMEM */
    int (*open)(struct disk *d, const char *path, bool append, struct disk_file **out,
                struct err *err);
    /* All of the bytes, or ERR_IO. */
    int (*write)(struct disk_file *f, const void *data, size_t len, struct err *err);
    /* Cut the file back to its first `len` bytes. ERR_IO */
    int (*truncate)(struct disk_file *f, uint64_t len, struct err *err);
    /* Written data survives a power cut. An error is final. ERR_IO */
    int (*sync)(struct disk_file *f, struct err *err);
    int (*close)(struct disk_file *f, struct err *err); /* f is gone, also after an error */

    /* Take the file for this process until `unlock`, or until the process ends in any way; the file
     * says who has it. take_over: the present holder loses it. ERR_USAGE  somebody has it, or may
     * have it: *holder; ERR_IO, ERR_NOMEM */
    int (*lock)(struct disk *d, const char *path, bool take_over, struct disk_file **out,
                struct disk_holder *holder, struct err *err);
    /* A sign of life of who has the lock, for machines from which that cannot be seen. Another may
     * have taken it over: it is taken again once that one has given it up, or is dead. */
    void (*touch)(struct disk_file *lock);
    /* Gives it up and removes the file, if it is still this process's; `lock` is gone. */
    void (*unlock)(struct disk_file *lock);
};

/* The holder of a lock. */
struct disk_holder {
    char text[160]; /* "process 4711 on host a, since 2026-11-24 12:03" */
    double silent;  /* s since its last sign of life, where that is all that can be known; < 0: it
                      lives for certain */
};

/* A holder that cannot be seen from here is taken to be gone after so long without a sign, s. */
enum { DISK_SILENCE_MAX = 20 };

struct disk {
    const struct disk_ops *ops;
};

/* Make a directory that is there after a power cut, too: its maker syncs its name in the directory
 * above. Fine when it is there; *made: it was not (may be NULL). ERR_IO */
int disk_keep_dir(struct disk *d, const char *path, bool *made, struct err *err);

/* A file that is being written is `path` with this ending, which no user gives a file. Of one that
 * a crash left, the next write of `path` takes the place. */
#define DISK_UNFINISHED ".paceline-new"

/* Replace `path` by these bytes, or leave it as it was: a new file in the same directory, synced,
 * renamed over it, the directory synced. `path` has a directory part. A link is replaced, not
 * followed. ERR_IO, ERR_NOMEM */
int disk_replace(struct disk *d, const char *path, const void *data, size_t len, struct err *err);

/* The same, with what `fill` writes. An error that it returns. */
int disk_replace_by(struct disk *d, const char *path,
                    int (*fill)(void *user, struct disk_file *file, struct err *err), void *user,
                    struct err *err);

#endif
