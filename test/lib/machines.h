/* A run of the tiny job whose driver and workers are started one by one, as on several machines:
 * `paceline driver`, and `paceline worker` in folders of their own. */
#ifndef PL_LIB_MACHINES_H
#define PL_LIB_MACHINES_H

#include "real_run.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { MACHINES_MAX = 8 };

struct machines {
    struct real_run run; /* the driver */
    struct process worker[MACHINES_MAX];
    size_t workers;
    char join[64]; /* the driver's address, from its printed line */
};

/* A port of the loopback that was free a moment ago. */
static inline void machines_port(char address[32])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(address, 32, "127.0.0.1:%d", ntohs(at.sin_port));
    close(fd);
}

/* Has a process printed `what` on its standard error? */
static inline bool machines_log(const struct process *p, const char *what)
{
    char *text = process_output(p->err_fd);
    bool found = strstr(text, what) != NULL;
    free(text);
    return found;
}

static inline bool machines_listens(struct machines *m)
{
    static const char line[] = "paceline worker --join ";
    char *text = process_output(m->run.p.err_fd);
    const char *at = strstr(text, line);
    bool whole = at && strchr(at, '\n') && sscanf(at + sizeof line - 1, "%63s", m->join) == 1;
    free(text);
    return whole;
}

/* Start the driver with these further arguments, ended by NULL, and wait until it prints its
 * address. */
static inline void machines_start(struct tiny *t, struct machines *m, const char *const *more)
{
    const char *argv[PROCESS_ARGS_MAX] = {"driver", t->job, "--json", "--out"};
    *m = (struct machines){.run = real_new(t)};
    argv[4] = m->run.dir;
    argv[5] = "--listen"; /* not the default port, which drivers of other tests may have */
    argv[6] = "127.0.0.1:0";
    for (size_t n = 7; *more; n++)
        argv[n] = *more++;
    process_start(&m->run.p, t->folder, argv);
    UNTIL(REAL_LIMIT_S, process_poll(&m->run.p) || machines_listens(m));
    if (m->run.p.ended)
        fail_msg("the driver has ended: %s", m->run.p.err);
}

#define DRIVE(t, m, ...) machines_start(t, m, (const char *const[]){__VA_ARGS__, NULL})

/* One more worker, in that folder, with these further arguments. */
static inline struct process *machines_worker_in(struct machines *m, const char *folder,
                                                 const char *const *more)
{
    const char *argv[PROCESS_ARGS_MAX] = {"worker", "--join", m->join};
    for (size_t n = 3; *more; n++)
        argv[n] = *more++;
    assert_true(m->workers < MACHINES_MAX);
    struct process *p = &m->worker[m->workers++];
    process_start(p, folder, argv);
    return p;
}

#define WORKER(m, folder, ...) \
    machines_worker_in(m, folder, (const char *const[]){__VA_ARGS__, NULL})

/* All workers end with that code. */
static inline void machines_end(struct machines *m, int code)
{
    for (size_t i = 0; i < m->workers; i++) {
        process_wait(&m->worker[i], REAL_LIMIT_S);
        if (m->worker[i].code != code)
            fail_msg("worker %zu ended with %d; it said:\n%s", i, m->worker[i].code,
                     m->worker[i].err);
    }
}

static inline void machines_release(struct machines *m)
{
    process_release(&m->run.p);
    for (size_t i = 0; i < m->workers; i++)
        process_release(&m->worker[i]);
}

#endif
