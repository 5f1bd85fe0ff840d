#define _GNU_SOURCE
#include "cli/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_FD = 3, /* where a worker finds the pipe with the run's key */
    ARGUMENTS_MAX = 14,
};

#define KEY_FILE "/proc/self/fd/3"

extern char **environ;

/* This process's environment, with settings that keep waiting threads from spinning on cores that
 * other workers need; settings of the user are kept. The caller frees the array, not its texts. */
static char **make_environment(void)
{
    static const char policy[] = "OMP_WAIT_POLICY=passive";
    size_t n = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 2, sizeof *env);
    if (!env)
        return NULL;
    memcpy(env, environ, n * sizeof *env);
    if (!getenv("OMP_WAIT_POLICY"))
        env[n] = (char *)(uintptr_t)policy;
    return env;
}

/* The reading end of a pipe that holds the key; -1 and errno. */
static int make_key_pipe(const char *key)
{
    int end[2];
    size_t n = strlen(key);
    if (pipe2(end, O_CLOEXEC) != 0)
        return -1;
    bool whole = write(end[1], key, n) == (ssize_t)n;
    close(end[1]);
    if (whole)
        return end[0];
    close(end[0]);
    errno = EIO;
    return -1;
}

/* Ctrl-C on the terminal, and its end, are for the driver, which ends the run for all: a worker of
 * ours does not see them. SIGTERM lets it leave; sent to all of a group, as a service manager does,
 * it ends the run. */
static void block_terminal(posix_spawnattr_t *attributes)
{
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP);
    sigaddset(&mask, SIGPIPE); /* a worker continues when its relay has died */
    posix_spawnattr_setsigmask(attributes, &mask);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK);
}

/* Nothing of ours runs in the child before it is `paceline worker`. Returns 0, or an errno. */
static int spawn_worker(const struct workers *workers, const char *address, char **env, pid_t *pid)
{
    const char *argv[ARGUMENTS_MAX] = {"paceline", "worker", "--one-machine", "--retry",
                                       "1",        "--join", address};
    size_t n = 7;
    if (workers->key) {
        argv[n++] = "--key";
        argv[n++] = KEY_FILE;
    }
    if (workers->cache) {
        argv[n++] = "--cache";
        argv[n++] = workers->cache;
    }
    argv[n++] = "--quiet";
    if (workers->insecure)
        argv[n++] = "--insecure";
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int fd = workers->key ? make_key_pipe(workers->key) : -1;
    if (workers->key && fd < 0)
        return errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    block_terminal(&attributes);
    if (workers->relay.open) /* first: it may lie where the key is to be */
        posix_spawn_file_actions_adddup2(&actions, workers->relay.ends[1], STDERR_FILENO);
    if (fd >= 0)
        posix_spawn_file_actions_adddup2(&actions, fd, KEY_FD);
    int code = posix_spawn(pid, "/proc/self/exe", &actions, &attributes,
                           (char *const *)(uintptr_t)argv, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (fd >= 0)
        close(fd);
    return code;
}

/* Free the slots of workers that have ended. */
static void reap_children(struct workers *workers)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < workers->count; i++)
        if (waitpid(workers->pid[i], NULL, WNOHANG) == 0)
            workers->pid[left++] = workers->pid[i];
    workers->lost += workers->count - left;
    workers->count = left;
}

uint32_t workers_lost(struct workers *workers)
{
    reap_children(workers);
    return workers->lost;
}

int workers_start(struct workers *workers, uint32_t count, const char *address)
{
    uint32_t started = 0;
    int code = 0;
    reap_children(workers);
    worker_relay_open(&workers->relay);
    char **env = make_environment();
    if (!env)
        code = ENOMEM;
    while (code == 0 && started < count && workers->count < WORKERS_MAX) {
        code = spawn_worker(workers, address, env, &workers->pid[workers->count]);
        if (code == 0) {
            workers->count++;
            started++;
        }
    }
    free(env);
    if (started == count)
        return 0;
    fprintf(stderr, "paceline: %u of %u workers were started: %s\n", started, count,
            code ? strerror(code) : "1024 are running, and there can be no more of them here");
    return -1;
}

void workers_end(struct workers *workers)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    reap_children(workers);
    for (int i = 0; i < 500 && workers->count > 0; i++) {
        nanosleep(&pause, NULL);
        reap_children(workers);
    }
    for (uint32_t i = 0; i < workers->count; i++) {
        kill(workers->pid[i], SIGKILL);
        waitpid(workers->pid[i], NULL, 0);
    }
    workers->count = 0;
    worker_relay_close(&workers->relay);
}
