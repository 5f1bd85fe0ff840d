#include "real/pool.h"

#include <stddef.h>
#include <stdlib.h>

struct pooled {
    struct pool *pool;
    struct pooled *next;
    int size; /* its room is POOL_ROOM_MIN << size */
    struct message m;
    _Alignas(max_align_t) char data[];
};

static size_t room_of(int size)
{
    return (size_t)POOL_ROOM_MIN << size;
}

struct pool *pool_create(void)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool && pthread_mutex_init(&pool->lock, NULL) != 0) {
        free(pool);
        return NULL;
    }
    return pool;
}

static void pool_free(struct pool *pool)
{
    for (int size = 0; size < POOL_ROOMS; size++)
        while (pool->spare[size]) {
            struct pooled *p = pool->spare[size];
            pool->spare[size] = p->next;
            free(p);
        }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void pool_close(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    bool last = pool->out == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
}

static void take_back(struct message *m)
{
    struct pooled *p = (struct pooled *)((char *)m - offsetof(struct pooled, m));
    struct pool *pool = p->pool;
    size_t room = room_of(p->size);
    pthread_mutex_lock(&pool->lock);
    bool keep = !pool->closed && pool->kept + room <= WORLD_CREDIT;
    if (keep) {
        p->next = pool->spare[p->size];
        pool->spare[p->size] = p;
        pool->kept += room;
    }
    pool->out--;
    bool last = pool->closed && pool->out == 0;
    pthread_mutex_unlock(&pool->lock);
    if (!keep)
        free(p);
    if (last)
        pool_free(pool);
}

struct message *pool_message(struct pool *pool, uint64_t tag, uint32_t view, size_t len)
{
    int size = 0;
    while (room_of(size) < len)
        size++;
    pthread_mutex_lock(&pool->lock);
    struct pooled *p = pool->spare[size];
    if (p) {
        pool->spare[size] = p->next;
        pool->kept -= room_of(size);
    } else {
        pool->made++;
    }
    pool->out++;
    pthread_mutex_unlock(&pool->lock);
    if (!p)
        p = malloc(sizeof *p + room_of(size));
    if (!p) {
        pthread_mutex_lock(&pool->lock);
        pool->out--;
        pthread_mutex_unlock(&pool->lock);
        return NULL;
    }
    p->pool = pool;
    p->size = size;
    p->m = (struct message){.view = view,
                            .tag = tag,
                            .len = len,
                            .data = p->data,
                            .references = 1,
                            .release = take_back};
    return &p->m;
}

/* ---- letters ---- */

struct pending_message *pool_pending(struct message_queue *queue, struct message *m,
                                     enum world_class class)
{
    struct pending_message *pending = queue->spare;
    if (pending) {
        queue->spare = pending->next;
        queue->kept--;
    } else {
        pending = malloc(sizeof *pending);
        if (!pending)
            return NULL;
        queue->made++;
    }
    *pending = (struct pending_message){.m = m, .class = class};
    return pending;
}

struct message *pool_pending_return(struct message_queue *queue, struct pending_message *pending)
{
    struct message *m = pending->m;
    if (queue->kept < PENDING_KEPT) {
        pending->next = queue->spare;
        queue->spare = pending;
        queue->kept++;
    } else {
        free(pending);
    }
    return m;
}

void message_queue_release(struct message_queue *queue)
{
    while (queue->spare) {
        struct pending_message *pending = queue->spare;
        queue->spare = pending->next;
        free(pending);
    }
}
