/* The machine's memory, for callers that refuse a net that would not fit: Linux grants memory that
 * it does not have, and kills the process that uses it. */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include <stddef.h>

/* Bytes that could be allocated now without swapping, by the system's estimate and the limits of
 * control groups (cgroup.h): MEMORY_LEAST where none are left, 0 where neither is known. *limit
 * (may be NULL): the control file with the tighter limit, as "memory.max"; NULL: the machine's own
 * memory is tighter. */
size_t memory_available(const char **limit);

/* The same of the files under `root`, which is "" for the machine's own. */
size_t memory_available_under(const char *root, const char **limit);

/* Bytes of memory that this process has now; 0: unknown. */
size_t memory_used(void);

enum { MEMORY_LEAST = 4096 };

#endif
