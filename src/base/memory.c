#include "base/memory.h"

#include "base/cgroup.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { MEMINFO_MAX = 1 << 16 };

/* 0: it does not say. */
static size_t read_machine_memory(void)
{
    static const char key[] = "MemAvailable:"; /* in KiB */
    struct file_bytes text;
    struct err err = {0};
    if (file_read("/proc/meminfo", MEMINFO_MAX, &text, &err) != OK)
        return 0;
    const char *at = strstr((const char *)text.data, key);
    size_t kib = at ? (size_t)strtoull(at + strlen(key), NULL, 10) : 0;
    file_release(&text);
    return kib * 1024;
}

size_t memory_available(const char **limit)
{
    struct cgroup_limits groups;
    size_t machine = read_machine_memory();
    cgroup_read("", &groups);
    bool held = groups.memory_by && (machine == 0 || groups.memory < machine);
    if (limit)
        *limit = held ? groups.memory_by : NULL;
    return held ? groups.memory : machine;
}
