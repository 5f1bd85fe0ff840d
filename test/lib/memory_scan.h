/* The memory of a running process as its core dump would have it: a search for bytes in the pages
 * that a dump contains, or in those that it leaves out. */
#ifndef PL_LIB_MEMORY_SCAN_H
#define PL_LIB_MEMORY_SCAN_H

#include "process.h"

enum { SCAN_AT_ONCE = 1 << 20, SCAN_NEEDLE_MAX = 256 };

/* How often the bytes are in one mapping, which may be gone. */
static inline int scan_mapping(int memory, uint64_t from, uint64_t to, const void *needle, size_t n)
{
    static uint8_t bytes[SCAN_AT_ONCE + SCAN_NEEDLE_MAX];
    int found = 0;
    for (uint64_t at = from; at + n <= to; at += SCAN_AT_ONCE) {
        size_t rest = (size_t)(to - at), most = sizeof bytes < rest ? sizeof bytes : rest;
        ssize_t have = pread(memory, bytes, most, (off_t)at);
        if (have <= 0)
            continue;
        const uint8_t *hit, *end = bytes + have;
        for (const uint8_t *p = bytes; (hit = memmem(p, (size_t)(end - p), needle, n)); p = hit + 1)
            found += hit < bytes + SCAN_AT_ONCE; /* a later one belongs to the next piece */
    }
    return found;
}

/* How often the n bytes are in pages of the process: `dumped`, of a core dump, or of the others. */
static inline int scan_memory(pid_t pid, const void *needle, size_t n, bool dumped)
{
    char path[64], line[512];
    unsigned long long from = 0, to = 0, kb = 0;
    int found = 0;
    assert_true(n > 0 && n <= SCAN_NEEDLE_MAX);
    snprintf(path, sizeof path, "/proc/%ld/mem", (long)pid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%ld/smaps", (long)pid);
    FILE *maps = fopen(path, "r");
    assert_true(memory >= 0 && maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long long begin, end, k;
        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2) {
            from = begin;
            to = end;
            kb = 0;
        } else if (sscanf(line, "Rss: %llu", &k) == 1 || sscanf(line, "Swap: %llu", &k) == 1) {
            kb += k;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && kb > 0 && strstr(line, " rd")) {
            if (!strstr(line, " dd") == dumped)
                found += scan_mapping(memory, from, to, needle, n);
        }
    }
    fclose(maps);
    close(memory);
    return found;
}

#endif
