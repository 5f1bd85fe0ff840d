/* Workers of a run as engines of the test's own process, a thread for each. */
#ifndef PL_LIB_ENGINE_WORKERS_H
#define PL_LIB_ENGINE_WORKERS_H

#include "paceline/run.h"

#include <pthread.h>
#include <stdio.h>

enum { ENGINE_WORKERS_MAX = 4 };

struct engine_worker {
    void (*prepare)(pl_engine *engine, const void *arg); /* called before it works; may be NULL */
    const void *arg;
    const char *data_root, *data_urls; /* as in pl_work_options */
    pthread_t thread;
    char address[128];
    int rc;
    char error[512];
};

struct engine_workers {
    struct engine_worker at[ENGINE_WORKERS_MAX];
    uint32_t started;
};

static void *engine_worker_main(void *arg)
{
    struct engine_worker *worker = arg;
    pl_engine *engine = NULL;
    worker->rc = pl_engine_create(NULL, &engine);
    if (worker->rc != PL_OK)
        return NULL;
    if (worker->prepare)
        worker->prepare(engine, worker->arg);
    worker->rc = pl_work(engine, &(pl_work_options){.size = sizeof(pl_work_options),
                                                    .driver = worker->address,
                                                    .data_root = worker->data_root,
                                                    .data_urls = worker->data_urls});
    if (worker->rc != PL_OK)
        snprintf(worker->error, sizeof worker->error, "%s", pl_engine_error(engine));
    pl_engine_destroy(engine);
    return NULL;
}

/* pl_run_options.start_workers, with the workers as `user`. */
static inline int engine_workers_start(void *user, uint32_t count, const char *address)
{
    struct engine_workers *workers = user;
    for (uint32_t i = 0; i < count && workers->started < ENGINE_WORKERS_MAX; i++) {
        struct engine_worker *worker = &workers->at[workers->started];
        snprintf(worker->address, sizeof worker->address, "%s", address);
        if (pthread_create(&worker->thread, NULL, engine_worker_main, worker) != 0)
            return -1;
        workers->started++;
    }
    return 0;
}

static inline void engine_workers_end(struct engine_workers *workers)
{
    for (uint32_t i = 0; i < workers->started; i++)
        pthread_join(workers->at[i].thread, NULL);
}

#endif
