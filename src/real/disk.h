/* The host's file system, as both worlds may be given it. */
#ifndef PL_REAL_DISK_H
#define PL_REAL_DISK_H

#include "base/file.h"
#include "world/disk.h"

/* Stateless, for any thread. */
struct disk *real_disk(void);

/* Is the folder in a file system that is memory (tmpfs)? */
bool real_disk_in_memory(const char *path);

/* A path for a new file that no other process of this machine chooses: FOLDER/paceline-NAME-…, in
 * the folder for temporary files if `folder` is NULL. ERR_INPUT: it is longer than `size`. */
int real_disk_temporary(const char *folder, const char *name, char *path, size_t size,
                        struct err *err);

/* ---- private files, which pass from one process to another when the first has ended ---- */

/* Make an empty file of mode 0600, which is this process's until it closes it or ends in any way.
 * It gets its name, and replaces a file of that name, when it is locked. ERR_IO */
int real_disk_own(const char *path, struct file_open *out, struct err *err);

/* Take the file of a process that has ended. ERR_USAGE: its process lives; ERR_INPUT: it is no
 * regular file, a link, another user's, open to other users, or has further names; ERR_IO */
int real_disk_inherit(const char *path, struct file_open *out, struct err *err);

#endif
