/* Makes a worker hang in native code: holds the thread that computes, while the other threads of its process continue.
 *
 *   hold_thread PID
 *
 * It ends with code 77 where the system does not let it hold a thread. It writes a line once the thread is held, and holds it until this program ends, or the process does. The thread is
 * held in the code of Paceline's library: in the C library it might have a lock for which the others would wait. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

enum { SKIPPED = 77, TRIES = 10000, PATH_BYTES = 512, LINE_BYTES = 1024 };

static const char worker_name[] = "paceline-worker";  /* threads that it starts have it, too */
static const char library_name[] = "libpaceline-jni"; /* its file is removed once it is loaded */

static int fail(const char *what)
{
    fprintf(stderr, "hold_thread: %s: %s\n", what, strerror(errno));
    return EXIT_FAILURE;
}

/* Processor time of a worker's thread, in ticks; -1: it is another thread. */
static long worker_ticks(const char *pid, const char *tid)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    unsigned long user, kernel;
    snprintf(path, sizeof path, "/proc/%s/task/%s/stat", pid, tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    const char *name = fgets(line, sizeof line, file) ? strchr(line, '(') : NULL;
    const char *rest = name ? strrchr(line, ')') : NULL;
    fclose(file);
    if (!rest || strncmp(name + 1, worker_name, strlen(worker_name)) != 0)
        return -1;
    if (sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) != 2)
        return -1;
    return (long)(user + kernel);
}

/* The worker's thread with the most processor time; 0: there is none. */
static pid_t computing_thread(const char *pid)
{
    char path[PATH_BYTES];
    pid_t found = 0;
    long most = -1;
    snprintf(path, sizeof path, "/proc/%s/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return 0;
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        long ticks = worker_ticks(pid, task->d_name);
        if (ticks > most) {
            most = ticks;
            found = (pid_t)atol(task->d_name);
        }
    }
    closedir(tasks);
    return found;
}

static bool is_in_library(const char *pid, unsigned long address)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%s/maps", pid);
    FILE *maps = fopen(path, "r");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        found = sscanf(line, "%lx-%lx", &from, &to) == 2 && address >= from && address < to &&
                strstr(line, library_name);
    }
    if (maps)
        fclose(maps);
    return found;
}

/* Let it continue, for a time that differs from step to step, and stop it again. */
static bool step(pid_t thread, int attempt)
{
    const struct timespec pause = {.tv_nsec = 1000000 + attempt % 7 * 100000};
    int status;
    if (attempt > 0 && ptrace(PTRACE_CONT, thread, NULL, NULL) != 0)
        return false;
    if (attempt > 0)
        nanosleep(&pause, NULL);
    return ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0 &&
           waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status);
}

int main(int argc, char **argv)
{
    pid_t thread = argc == 2 ? computing_thread(argv[1]) : 0;
    if (thread == 0)
        return fail("the process has no worker");
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0) {
        bool refused = errno == EPERM;
        (void)fail("the thread cannot be held");
        return refused ? SKIPPED : EXIT_FAILURE;
    }
    for (int attempt = 0; attempt < TRIES; attempt++) {
        struct user_regs_struct registers;
        int status;
        if (!step(thread, attempt) || ptrace(PTRACE_GETREGS, thread, NULL, &registers) != 0)
            return fail("the thread does not stop");
        if (!is_in_library(argv[1], registers.rip))
            continue;
        printf("thread %ld is held\n", (long)thread);
        fflush(stdout);
        waitpid(thread, &status,
                __WALL); /* its process has ended: the system keeps it for this program until now */
        return EXIT_SUCCESS;
    }
    return fail("the thread does not compute");
}
