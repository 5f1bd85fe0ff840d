#define _GNU_SOURCE
#include "real/real.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

int64_t real_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * WORLD_SECOND + t.tv_nsec;
}

int real_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

uint64_t real_peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

void real_sleep(int64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / WORLD_SECOND),
                         .tv_nsec = (long)(ns % WORLD_SECOND)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}
