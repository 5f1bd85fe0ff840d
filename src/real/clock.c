#define _GNU_SOURCE
#include "base/cgroup.h"
#include "real/real.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { CPUS_MAX = 1 << 20 };

int64_t real_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * WORLD_SECOND + t.tv_nsec;
}

/* Those the process may run on: a set of 1,024 is too small for the largest machines. */
static int count_affinity(void)
{
    for (size_t n = CPU_SETSIZE; n <= CPUS_MAX; n *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(n);
        cpu_set_t *set = CPU_ALLOC(n);
        if (!set)
            return 1;
        int rc = sched_getaffinity(0, bytes, set), error = errno;
        int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (rc == 0 || error != EINVAL)
            return count > 0 ? count : 1;
    }
    return 1;
}

int real_cores_under(const char *root)
{
    struct cgroup_limits groups;
    int cores = count_affinity();
    cgroup_read(root, &groups);
    double allowed = ceil(groups.cpus);
    return allowed >= cores ? cores : allowed > 1 ? (int)allowed : 1;
}

int real_cores(void)
{
    return real_cores_under("");
}

int real_threads(uint32_t processes)
{
    const char *text = getenv("OMP_NUM_THREADS");
    long most = text ? strtol(text, NULL, 10) : 0, share = real_cores() / (long)processes;
    if (most > 0 && most < share)
        share = most;
    return share > 1 ? (int)share : 1;
}

uint64_t real_peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

void real_host_name(char *out, size_t size)
{
    if (gethostname(out, size) != 0)
        out[0] = '\0';
    out[size - 1] = '\0';
}

/* "model name : AMD EPYC 9004", of the first processor. */
void real_cpu_name(char *out, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    out[0] = '\0';
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon)
            snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (f)
        fclose(f);
}

uint64_t real_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

void real_sleep(int64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / WORLD_SECOND),
                         .tv_nsec = (long)(ns % WORLD_SECOND)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}
