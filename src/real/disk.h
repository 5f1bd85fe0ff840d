/* The host's file system, as both worlds may be given it. */
#ifndef PL_REAL_DISK_H
#define PL_REAL_DISK_H

#include "world/disk.h"

/* Stateless, for any thread. */
struct disk *real_disk(void);

/* Is the folder in a file system that is memory (tmpfs)? */
bool real_disk_in_memory(const char *path);

#endif
