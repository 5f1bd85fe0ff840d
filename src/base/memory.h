/* The machine's memory, for callers that refuse a net that would not fit: Linux grants memory that
 * it does not have, and kills the process that uses it. */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include <stddef.h>

/* Bytes that could be allocated now without swapping, by the system's estimate, the limits of
 * control groups (cgroup.h) and that of the process's addresses: MEMORY_LEAST where none are left,
 * 0 where none of them is known. *limit (may be NULL): the tightest limit, which is a control file,
 * as "memory.max", or MEMORY_ADDRESSES; NULL: the machine's own memory is tighter. */
size_t memory_available(const char **limit);

#define MEMORY_ADDRESSES "RLIMIT_AS"

/* The same of the files under `root`, which is "" for the machine's own, without the limit of
 * addresses. */
size_t memory_available_under(const char *root, const char **limit);

/* Bytes of memory that this process has now; 0: unknown. */
size_t memory_used(void);

enum { MEMORY_LEAST = 4096 };

#endif
