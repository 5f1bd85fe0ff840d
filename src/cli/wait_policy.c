#include "cli/wait_policy.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LOOKS = 5, INTERVAL_NS = 10 * 1000 * 1000 };

/* Runnable threads of the machine, this one excluded: from the fourth word of loadavg,
 * "RUNNABLE/ALL". 0: unknown. */
static int count_runnable(void)
{
    int runnable = 1;
    FILE *file = fopen("/proc/loadavg", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%*s %*s %*s %d/", &runnable) != 1)
        runnable = 1;
    fclose(file);
    return runnable - 1;
}

/* Not just for a moment. */
static bool is_machine_busy(void)
{
    const struct timespec pause = {.tv_nsec = INTERVAL_NS};
    int busy = 0;
    for (int i = 0; i < LOOKS; i++) {
        if (i > 0)
            nanosleep(&pause, NULL);
        busy += count_runnable() > 0;
        if (busy + LOOKS - 1 - i < LOOKS - 1)
            return false;
    }
    return true;
}

static bool has_user_chosen(void)
{
    const char *threads = getenv("OMP_NUM_THREADS");
    return getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
           (threads && strcmp(threads, "1") == 0);
}

void wait_policy_choose(char **argv)
{
    char self[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || has_user_chosen() || !is_machine_busy() ||
        setenv("OMP_WAIT_POLICY", "passive", 0) != 0)
        return;
    self[n] = '\0'; /* not by the link: the process would be called "exe" */
    execv(self, argv);
    unsetenv("OMP_WAIT_POLICY"); /* it cannot be executed: the command continues as it is */
}
