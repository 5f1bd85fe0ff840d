/* Resources that a container or a batch system allows this process: the limits of its control
 * groups, of version 1 and 2, and of all groups above them that are visible here. */
#ifndef PL_BASE_CGROUP_H
#define PL_BASE_CGROUP_H

#include <stddef.h>

struct cgroup_limits {
    size_t memory;         /* bytes that may still be taken; SIZE_MAX: no limit */
    const char *memory_by; /* the file with the limit, as "memory.max"; NULL: no limit */
    double cpus;           /* processors' time; INFINITY: no limit */
};

/* Reads a few small files under `root`, which is "" for the machine's own. A system without control
 * groups, or files that cannot be read, set no limit. */
void cgroup_read(const char *root, struct cgroup_limits *out);

#endif
