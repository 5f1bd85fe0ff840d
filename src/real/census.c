#include "real/census.h"

#include "real/real.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* The first number in a thread's schedstat. */
static int64_t time_of(int64_t id)
{
    char path[64];
    int64_t ns = 0;
    snprintf(path, sizeof path, "/proc/self/task/%" PRId64 "/schedstat", id);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    if (fscanf(f, "%" SCNd64, &ns) != 1)
        ns = 0;
    fclose(f);
    return ns;
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
            out->thread[out->threads].ns = time_of(id);
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
