/* The machine's memory, for callers that refuse a net that would not fit: Linux grants memory that
 * it does not have, and kills the process that uses it. */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include <stddef.h>

/* Bytes that could be taken now without swapping, as the system estimates and control groups
 * (cgroup.h) allow: MEMORY_LEAST where nothing is left, 0 where neither says. *limit (may be NULL)
 * becomes the control file that is the tighter of the two, as "memory.max", or NULL: the machine's
 * own memory is. */
size_t memory_available(const char **limit);

/* The same of the files under `root`, which is "" for the machine's own. */
size_t memory_available_under(const char *root, const char **limit);

enum { MEMORY_LEAST = 4096 };

#endif
