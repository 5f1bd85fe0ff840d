#include "base/memory.h"

#include "base/cgroup.h"
#include "base/file.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MEMINFO_MAX = 1 << 16, PATH_BYTES = 4096 };

/* false: the system does not report it. */
static bool read_machine_memory(const char *root, size_t *out)
{
    static const char key[] = "MemAvailable:"; /* in KiB */
    char path[PATH_BYTES];
    struct file_bytes text;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (file_read(path, MEMINFO_MAX, &text, &err) != OK)
        return false;
    const char *at = strstr((const char *)text.data, key);
    if (at)
        *out = (size_t)strtoull(at + strlen(key), NULL, 10) * 1024;
    file_release(&text);
    return at;
}

size_t memory_available_under(const char *root, const char **limit)
{
    struct cgroup_limits groups;
    size_t left = SIZE_MAX;
    bool limit_text = read_machine_memory(root, &left);
    cgroup_read(root, &groups);
    bool held = groups.memory_by && groups.memory < left;
    if (limit)
        *limit = held ? groups.memory_by : NULL;
    if (held)
        left = groups.memory;
    else if (!limit_text)
        return 0;
    return left > MEMORY_LEAST ? left : MEMORY_LEAST;
}

/* A line of this process's status, in KiB there. */
static size_t read_status(const char *key)
{
    struct file_bytes text;
    size_t bytes = 0;
    if (file_read("/proc/self/status", MEMINFO_MAX, &text, NULL) != OK)
        return 0;
    const char *at = strstr((const char *)text.data, key);
    if (at)
        bytes = (size_t)strtoull(at + strlen(key), NULL, 10) * 1024;
    file_release(&text);
    return bytes;
}

size_t memory_used(void)
{
    return read_status("VmRSS:");
}

/* SIZE_MAX: they have no limit. */
static size_t addresses_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    size_t used = read_status("VmSize:");
    size_t left = limit.rlim_cur > used ? (size_t)limit.rlim_cur - used : 0;
    return left > MEMORY_LEAST ? left : MEMORY_LEAST;
}

size_t memory_available(const char **limit)
{
    size_t left = memory_available_under("", limit), addresses = addresses_left();
    if (addresses == SIZE_MAX || (left > 0 && left <= addresses))
        return left;
    if (limit)
        *limit = MEMORY_ADDRESSES;
    return addresses;
}
