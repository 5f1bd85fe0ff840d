/* The command as a user runs it: a process with a time limit, its output, and its workers from
 * /proc. */
#ifndef PL_LIB_PROCESS_H
#define PL_LIB_PROCESS_H

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROCESS_ARGS_MAX = 40, PROCESS_CHILDREN_MAX = 16 };

struct process {
    pid_t pid;            /* leads a group of its own, to which its workers belong */
    int out_fd, err_fd;   /* nameless files */
    char *out, *err;      /* its output, after its end */
    int code;             /* exit status, or 128 + the signal that ended it */
    bool ended, released; /* waited for; its memory given back */
};

/* Seconds of a monotonic clock. */
static inline double process_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void process_nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static inline int process_capture(void)
{
    char name[] = "/tmp/paceline-said-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    unlink(name);
    return fd;
}

/* The output until now, ended by a zero. Freed by the caller. */
static inline char *process_output(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    assert_true(size >= 0);
    char *text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_true(pread(fd, text, (size_t)size, 0) == size);
    return text;
}

/* Whose processes are started from now on; 0: of this process's user. */
static uid_t process_user;

static inline bool process_become(uid_t user)
{
    return setgid(user) == 0 && setuid(user) == 0;
}

/* Start `PROGRAM ARGV…` of the build, ended by NULL, in the folder. */
static inline void process_start_of(struct process *p, const char *program, const char *folder,
                                    const char *const *argv)
{
    char path[512], *args[PROCESS_ARGS_MAX + 2] = {(char *)(uintptr_t)program};
    snprintf(path, sizeof path, "%s/%s", TEST_BUILD, program);
    for (size_t i = 0; argv[i]; i++) {
        assert_true(i < PROCESS_ARGS_MAX);
        args[i + 1] = (char *)(uintptr_t)argv[i];
    }
    *p = (struct process){.out_fd = process_capture(), .err_fd = process_capture()};
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        setpgid(0, 0);
        if (process_user && !process_become(process_user))
            _exit(126);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves none behind */
        if (chdir(folder) == 0 && dup2(p->out_fd, STDOUT_FILENO) >= 0 &&
            dup2(p->err_fd, STDERR_FILENO) >= 0)
            execv(path, args);
        _exit(126);
    }
    setpgid(p->pid, p->pid);
}

static inline void process_start(struct process *p, const char *folder, const char *const *argv)
{
    process_start_of(p, "paceline", folder, argv);
}

/* The whole group, workers included. */
static inline void process_signal_all(const struct process *p, int number)
{
    kill(-p->pid, number);
}

/* Has it ended? Then its exit code and output are set. */
static inline bool process_poll(struct process *p)
{
    int status;
    if (!p->ended && waitpid(p->pid, &status, WNOHANG) == p->pid) {
        p->ended = true;
        p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        p->out = process_output(p->out_fd);
        p->err = process_output(p->err_fd);
    }
    return p->ended;
}

/* Time in which this process did not run does not count, since the awaited process did not run
 * either. */
static inline double process_not_stopped(double *last, double until)
{
    double now = process_now(), gap = now - *last;
    *last = now;
    return gap > 1 ? until + gap : until;
}

/* Wait for its end; a process that runs longer than that is killed, and the test fails. */
static inline void process_wait(struct process *p, double limit_s)
{
    double last = process_now(), until = last + limit_s;
    while (!process_poll(p)) {
        until = process_not_stopped(&last, until);
        if (last > until) {
            process_signal_all(p, SIGKILL);
            while (!process_poll(p))
                process_nap(0.01);
            fail_msg("still running after %g s; it said:\n%s", limit_s, p->err);
        }
        process_nap(0.002);
    }
}

/* End the rest of the process group, and free its output. */
static inline void process_release(struct process *p)
{
    if (p->pid <= 0 || p->released)
        return;
    process_signal_all(p, SIGKILL);
    while (!process_poll(p))
        process_nap(0.002);
    free(p->out);
    free(p->err);
    close(p->out_fd);
    close(p->err_fd);
    p->released = true;
}

/* State letter and parent of a process; false when there is none. */
static inline bool process_stat(pid_t pid, char *state, pid_t *parent)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* of the name, which may hold anything */
    long ppid;
    if (!after || sscanf(after + 1, " %c %ld", state, &ppid) != 2)
        return false;
    *parent = (pid_t)ppid;
    return true;
}

/* Does this process exist, and has it not ended? */
static inline bool process_is_alive(pid_t pid)
{
    char state;
    pid_t parent;
    return process_stat(pid, &state, &parent) && state != 'Z' && state != 'X';
}

/* The live children of a process, in the order of their numbers. */
static inline size_t process_children(pid_t of, pid_t child[PROCESS_CHILDREN_MAX])
{
    size_t count = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (const struct dirent *entry; (entry = readdir(proc));) {
        char state;
        pid_t parent, pid = (pid_t)atol(entry->d_name);
        if (!isdigit((unsigned char)entry->d_name[0]) || !process_stat(pid, &state, &parent) ||
            parent != of || state == 'Z' || count == PROCESS_CHILDREN_MAX)
            continue;
        size_t at = count++;
        for (; at > 0 && child[at - 1] > pid; at--)
            child[at] = child[at - 1];
        child[at] = pid;
    }
    closedir(proc);
    return count;
}

#endif
