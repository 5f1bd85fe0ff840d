/* Controls the fault proxy (test/proxy): a process that receives commands, one a line. */
#ifndef PL_LIB_PROXIED_H
#define PL_LIB_PROXIED_H

#include "process.h"

#include <sys/prctl.h>

enum { PROXIED_ROUTES_MAX = 8 };

struct proxied {
    pid_t pid;
    FILE *in, *out;                       /* its commands and its replies */
    char address[PROXIED_ROUTES_MAX][32]; /* to connect to, of each route */
};

/* A line of the proxy's, without its end. */
static inline void proxied_receive(struct proxied *p, char *line, int size)
{
    if (!fgets(line, size, p->out))
        fail_msg("the proxy has ended");
    line[strcspn(line, "\n")] = '\0';
}

/* Start it with these routes, ended by NULL. */
static inline void proxied_start(struct proxied *p, const char *const *routes)
{
    int in[2], out[2];
    char *argv[PROXIED_ROUTES_MAX + 2] = {"paceline_proxy"}, line[64];
    int n = 0;
    for (; routes[n]; n++) {
        assert_true(n < PROXIED_ROUTES_MAX);
        argv[n + 1] = (char *)(uintptr_t)routes[n];
    }
    assert_true(pipe(in) == 0 && pipe(out) == 0);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        for (int i = 0; i < 2; i++) {
            close(in[i]);
            close(out[i]);
        }
        execv(TEST_BUILD "/paceline_proxy", argv);
        _exit(126);
    }
    close(in[0]);
    close(out[1]);
    fcntl(in[1], F_SETFD, FD_CLOEXEC); /* or a worker would keep the proxy alive */
    fcntl(out[0], F_SETFD, FD_CLOEXEC);
    p->in = fdopen(in[1], "w");
    p->out = fdopen(out[0], "r");
    for (int i = 0; i < n; i++) {
        int number = -1;
        proxied_receive(p, line, sizeof line);
        assert_int_equal(sscanf(line, "route %d %31s", &number, p->address[i]), 2);
        assert_int_equal(number, i);
    }
}

/* Sends a line, and receives the reply. */
static inline void proxied_request(struct proxied *p, const char *line, char *reply, int size)
{
    fprintf(p->in, "%s\n", line);
    fflush(p->in);
    proxied_receive(p, reply, size);
}

static inline void proxied_command(struct proxied *p, const char *line)
{
    char reply[128];
    proxied_request(p, line, reply, sizeof reply);
    if (strcmp(reply, "ok") != 0)
        fail_msg("the proxy was told '%s', and says: %s", line, reply);
}

static inline void proxied_end(struct proxied *p)
{
    if (p->pid <= 0)
        return;
    fclose(p->in);
    fclose(p->out);
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

#endif
