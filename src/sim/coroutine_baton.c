/* The second back end: a thread a coroutine. The holder of the baton runs, and all others wait for
 * theirs, so that nothing is ever concurrent although debuggers and race detectors see threads. */
#include "base/status.h"
#include "sim/coroutine.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

enum { STACK_BYTES = 2 * 1024 * 1024 }; /* reserved, and taken as it is used */

struct coroutine {
    pthread_t thread;
    sem_t turn, back; /* the baton: to the coroutine, and back to its resumer */
    void (*fn)(void *arg);
    void *arg;
    struct fault_sink *sink;
    bool abandoned; /* read at its turn: end instead of running */
};

struct coroutine_host {
    pthread_attr_t attr;
};

static int baton_open(struct coroutine_host **out)
{
    struct coroutine_host *host = calloc(1, sizeof *host);
    if (!host)
        return ERR_NOMEM;
    if (pthread_attr_init(&host->attr) != 0) {
        free(host);
        return ERR_NOMEM;
    }
    pthread_attr_setstacksize(&host->attr, STACK_BYTES);
    *out = host;
    return OK;
}

static void baton_close(struct coroutine_host *host)
{
    pthread_attr_destroy(&host->attr);
    free(host);
}

/* Until it is our turn. false: it is our end. */
static bool await_turn(struct coroutine *co)
{
    while (sem_wait(&co->turn) != 0)
        PL_ASSERT(errno == EINTR);
    return !co->abandoned;
}

static void *run_thread(void *arg)
{
    struct coroutine *co = arg;
    if (!await_turn(co))
        return NULL;
    fault_bind(co->sink);
    co->fn(co->arg);
    sem_post(&co->back);
    return NULL;
}

/* Signals are the business of the program's own threads. */
static int start_thread(struct coroutine_host *host, struct coroutine *co)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&co->thread, &host->attr, run_thread, co);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? OK : ERR_NOMEM;
}

static void free_coroutine(struct coroutine *co)
{
    sem_destroy(&co->turn);
    sem_destroy(&co->back);
    free(co);
}

static int baton_create(struct coroutine_host *host, void (*fn)(void *arg), void *arg,
                        struct fault_sink *sink, struct coroutine **out)
{
    struct coroutine *co = calloc(1, sizeof *co);
    if (!co)
        return ERR_NOMEM;
    co->fn = fn;
    co->arg = arg;
    co->sink = sink;
    sem_init(&co->turn, 0, 0);
    sem_init(&co->back, 0, 0);
    int rc = start_thread(host, co);
    if (rc != OK) {
        free_coroutine(co);
        return rc;
    }
    *out = co;
    return OK;
}

/* The sink is the thread's: the caller's stays where it is. */
static void baton_resume(struct coroutine *co)
{
    sem_post(&co->turn);
    while (sem_wait(&co->back) != 0)
        PL_ASSERT(errno == EINTR);
}

static void baton_yield(struct coroutine *co)
{
    sem_post(&co->back);
    if (!await_turn(co))
        pthread_exit(NULL);
}

/* The thread of one that has ended does not wait for its turn any more. */
static void baton_free(struct coroutine_host *host, struct coroutine *co)
{
    (void)host;
    co->abandoned = true;
    sem_post(&co->turn);
    pthread_join(co->thread, NULL);
    free_coroutine(co);
}

const struct coroutine_ops coroutine_baton = {
    .open = baton_open,
    .close = baton_close,
    .create = baton_create,
    .resume = baton_resume,
    .yield = baton_yield,
    .free = baton_free,
};
