#include "real/census.h"

#include "real/real.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* The first numbers in a thread's schedstat: ns on a processor, and ns ready for one. */
struct times {
    int64_t ran, delayed;
};

static struct times times_of(int64_t id)
{
    char path[64];
    struct times t = {0};
    snprintf(path, sizeof path, "/proc/self/task/%" PRId64 "/schedstat", id);
    FILE *f = fopen(path, "r");
    if (!f)
        return t;
    if (fscanf(f, "%" SCNd64 " %" SCNd64, &t.ran, &t.delayed) != 2)
        t = (struct times){0};
    fclose(f);
    return t;
}

void census_take(struct census *out)
{
    struct rusage usage;
    *out = (struct census){.now = real_now()};
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; tasks && (e = readdir(tasks));) {
        int64_t id = strtoll(e->d_name, NULL, 10);
        if (id <= 0)
            continue;
        if (out->threads < CENSUS_THREADS_MAX) {
            out->thread[out->threads].id = id;
            out->thread[out->threads].ns = times_of(id).ran;
        }
        out->threads++;
    }
    if (tasks)
        closedir(tasks);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->faults = (uint64_t)usage.ru_minflt;
}

int64_t census_busy(const struct census *start, const struct census *end, int thread)
{
    int64_t ns = end->thread[thread].ns;
    for (int i = 0; i < start->threads && i < CENSUS_THREADS_MAX; i++)
        if (start->thread[i].id == end->thread[thread].id)
            return ns - start->thread[i].ns;
    return ns;
}

int64_t census_delay(void)
{
    int64_t sum = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; tasks && (e = readdir(tasks));) {
        int64_t id = strtoll(e->d_name, NULL, 10);
        sum += id > 0 ? times_of(id).delayed : 0;
    }
    if (tasks)
        closedir(tasks);
    return sum;
}
