/* A real run whose driver and workers are started one by one, with worker 0 behind the fault proxy:
 * route 0 leads from it to the driver, route 1 from the other workers to it. */
#ifndef PL_LIB_STAGED_H
#define PL_LIB_STAGED_H

#include "proxied.h"
#include "real_run.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { STAGED_MAX = 8 };

struct staged {
    struct real_run run; /* the driver */
    struct process worker[STAGED_MAX];
    size_t workers;
    struct proxied proxy;
    char driver[64]; /* where it listens */
};

/* A port of the loopback that was free a moment ago. */
static inline void staged_port(char address[32])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(address, 32, "127.0.0.1:%d", ntohs(at.sin_port));
    close(fd);
}

static inline bool staged_address(struct staged *s)
{
    char *text = process_output(s->run.p.out_fd);
    bool whole = strchr(text, '\n') && sscanf(text, "%63s", s->driver) == 1;
    free(text);
    return whole;
}

static inline void staged_worker(struct tiny *t, struct staged *s)
{
    char listen[32];
    staged_port(listen);
    /* A lost worker stays lost. */
    const char *argv[] = {"worker",  "--join", s->driver, "--listen", listen,
                          "--retry", "0",      NULL,      NULL,       NULL};
    if (s->workers == 0) {
        proxied_start(&s->proxy, (const char *const[]){s->driver, listen, NULL});
        argv[2] = s->proxy.address[0];
        argv[7] = "--advertise";
        argv[8] = s->proxy.address[1];
    }
    process_start(&s->worker[s->workers++], t->folder, argv);
}

/* The tiny job with these assignments, ended by NULL; worker 0 is started first, and so gets its
 * number. */
static inline void staged_start(struct tiny *t, struct staged *s, size_t workers,
                                const char *const *set)
{
    char count[32];
    const char *argv[PROCESS_ARGS_MAX] = {t->job, NULL, "127.0.0.1:0", count};
    *s = (struct staged){.run = real_new(t)};
    snprintf(count, sizeof count, "workers=%zu", workers);
    argv[1] = s->run.dir;
    for (size_t n = 4; *set; n++)
        argv[n] = *set++;
    process_start_of(&s->run.p, "paceline_stage", t->folder, argv);
    UNTIL(REAL_LIMIT_S, process_poll(&s->run.p) || staged_address(s));
    if (s->run.p.ended)
        fail_msg("the driver has ended: %s", s->run.p.err);
    while (s->workers < workers) {
        staged_worker(t, s);
        if (s->workers == 1)
            UNTIL(REAL_LIMIT_S, real_members(&s->run, "join") == 1);
    }
}

/* How often a process has printed `what` on its standard error. */
static inline int staged_output(const struct process *p, const char *what)
{
    char *text = process_output(p->err_fd);
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    free(text);
    return n;
}

static inline void staged_release(struct staged *s)
{
    process_release(&s->run.p);
    for (size_t i = 0; i < s->workers; i++)
        process_release(&s->worker[i]);
    proxied_end(&s->proxy);
}

#endif
