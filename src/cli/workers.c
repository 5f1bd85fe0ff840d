#include "cli/workers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* In the child: Ctrl-C on the terminal is for the driver, which ends the run for all; and threads
 * that wait for work must not spin on cores that other workers need. */
static void become_worker(const char *address, bool insecure)
{
    signal(SIGINT, SIG_IGN);
    /* SIGTERM lets it leave; sent to all of a group, as a service manager does, it ends the run. */
    signal(SIGHUP, SIG_IGN);
    setenv("OMP_WAIT_POLICY", "passive", 0);
    char *const argv[] = {"paceline",
                          "worker",
                          "--retry",
                          "1",
                          "--join",
                          (char *)(uintptr_t)address,
                          insecure ? "--insecure" : NULL,
                          NULL};
    execv("/proc/self/exe", argv);
    fprintf(stderr, "paceline: cannot start a worker: %s\n", strerror(errno));
    _exit(127);
}

static uint32_t reap(struct workers *workers)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < workers->count; i++) {
        if (workers->pid[i] > 0 && waitpid(workers->pid[i], NULL, WNOHANG) != 0)
            workers->pid[i] = 0;
        left += workers->pid[i] > 0;
    }
    return left;
}

bool workers_lost(struct workers *workers)
{
    return reap(workers) < workers->count;
}

int workers_start(struct workers *workers, uint32_t count, const char *address)
{
    reap(workers);
    for (uint32_t i = 0; i < count && workers->count < WORKERS_MAX; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            fprintf(stderr, "paceline: cannot start a worker: %s\n", strerror(errno));
            return -1;
        }
        if (pid == 0)
            become_worker(address, workers->insecure);
        workers->pid[workers->count++] = pid;
    }
    return 0;
}

void workers_end(struct workers *workers)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int i = 0; i < 500 && reap(workers) > 0; i++)
        nanosleep(&pause, NULL);
    for (uint32_t i = 0; i < workers->count; i++) {
        if (workers->pid[i] > 0) {
            kill(workers->pid[i], SIGKILL);
            waitpid(workers->pid[i], NULL, 0);
        }
    }
    workers->count = 0;
}
