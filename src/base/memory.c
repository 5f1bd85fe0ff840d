#include "base/memory.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { MEMINFO_MAX = 1 << 16 };

size_t memory_available(void)
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
