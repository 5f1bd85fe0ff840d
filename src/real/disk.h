/* The host's file system, as both worlds may be given it. */
#ifndef PL_REAL_DISK_H
#define PL_REAL_DISK_H

#include "world/disk.h"

/* Stateless, for any thread. */
struct disk *real_disk(void);

/* Is the folder in a file system that is memory (tmpfs)? */
bool real_disk_in_memory(const char *path);

/* A path for a new file that no other process of this machine chooses: FOLDER/paceline-NAME-…, in
 * the folder for temporary files if `folder` is NULL. ERR_INPUT: it is longer than `size`. */
int real_disk_temporary(const char *folder, const char *name, char *path, size_t size,
                        struct err *err);

#endif
