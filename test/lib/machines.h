/* The cluster fixture of real processes: a run of the tiny job whose driver and workers are started
 * one by one, as on several machines. The driver is `paceline driver` or the stage (test/proxy),
 * which checks no connections before the run. Each `paceline worker` runs in a given folder; worker
 * 0 may be behind the fault proxy. */
#ifndef PL_LIB_MACHINES_H
#define PL_LIB_MACHINES_H

#include "free_port.h"
#include "proxied.h"
#include "real_run.h"

enum { MACHINES_MAX = 8 };

struct machines {
    struct real_run run; /* the driver */
    struct process worker[MACHINES_MAX];
    size_t workers;
    char join[128];       /* the driver's address, from its printed line */
    struct proxied proxy; /* of a worker that is behind it */
};

/* Has a process printed `what` on its standard error? */
static inline bool machines_log(const struct process *p, const char *what)
{
    char *text = process_output(p->err_fd);
    bool found = strstr(text, what) != NULL;
    free(text);
    return found;
}

/* Has the driver printed its address, after `before`, to this file? */
static inline bool machines_listens(struct machines *m, int fd, const char *before)
{
    char *text = process_output(fd);
    const char *at = strstr(text, before);
    bool whole = at && strchr(at, '\n') && sscanf(at + strlen(before), "%127s", m->join) == 1;
    free(text);
    return whole;
}

static inline void machines_wait_listening(struct machines *m, int fd, const char *before)
{
    UNTIL(REAL_LIMIT_S, process_poll(&m->run.p) || machines_listens(m, fd, before));
    if (m->run.p.ended)
        fail_msg("the driver has ended: %s", m->run.p.err);
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
    machines_wait_listening(m, m->run.p.err_fd, "paceline worker --join ");
}

/* The same for the stage, with these assignments to the job's fields, ended by NULL. */
static inline void machines_stage(struct tiny *t, struct machines *m, const char *const *set)
{
    *m = (struct machines){.run = real_new(t)};
    const char *argv[PROCESS_ARGS_MAX] = {t->job, m->run.dir, "127.0.0.1:0"};
    for (size_t n = 3; *set; n++)
        argv[n] = *set++;
    process_start_of(&m->run.p, "paceline_stage", t->folder, argv);
    machines_wait_listening(m, m->run.p.out_fd, "");
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

/* A worker with the fault proxy between it and all others: route 0 of the proxy leads to the
 * driver, route 1 from other workers to this one. */
static inline void machines_worker_behind(struct machines *m, const char *folder)
{
    char listen[PORT_TEXT], join[sizeof m->join];
    port_find(listen);
    memcpy(join, m->join, sizeof join);
    proxied_start(&m->proxy, (const char *const[]){join, listen, NULL});
    snprintf(m->join, sizeof m->join, "%s", m->proxy.address[0]);
    WORKER(m, folder, "--listen", listen, "--advertise", m->proxy.address[1], "--retry", "0");
    memcpy(m->join, join, sizeof join);
}

/* All workers end. */
static inline void machines_wait(struct machines *m)
{
    for (size_t i = 0; i < m->workers; i++)
        process_wait(&m->worker[i], REAL_LIMIT_S);
}

/* All workers end with that code. */
static inline void machines_end(struct machines *m, int code)
{
    machines_wait(m);
    for (size_t i = 0; i < m->workers; i++)
        if (m->worker[i].code != code)
            fail_msg("worker %zu ended with %d; it said:\n%s", i, m->worker[i].code,
                     m->worker[i].err);
}

static inline void machines_release(struct machines *m)
{
    process_release(&m->run.p);
    for (size_t i = 0; i < m->workers; i++)
        process_release(&m->worker[i]);
    proxied_end(&m->proxy);
}

#endif
