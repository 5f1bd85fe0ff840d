/* An open file of the host's disk, as its files share it; and the lock, which has one of its own.
 */
#ifndef PL_REAL_DISK_FILE_H
#define PL_REAL_DISK_FILE_H

#include "world/disk.h"

struct disk_file {
    int fd;
    char path[];
};

int disk_lock(struct disk *d, const char *path, bool take_over, struct disk_file **out,
              struct disk_holder *holder, struct err *err);
void disk_touch(struct disk_file *lock);
void disk_unlock(struct disk_file *lock);

#endif
