#include "real/http_fetch.h"

#include "real/real.h"
#include "real/thread.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void http_file_release(struct http_file *file)
{
    if (file->opened > 0 || file->fetches > 0)
        return;
    free(file->url);
    free(file->shown);
    free(file);
}

/* ---- a fetch ---- */

/* Bytes of it; of a file that is being opened, more than there may be. */
static size_t fetch_bytes(const struct http_fetch *fetch)
{
    uint64_t at = fetch->first * HTTP_BLOCK, n = fetch->count * HTTP_BLOCK;
    uint64_t len = fetch->file->identity.len;
    return (size_t)(len > 0 && len - at < n ? len - at : n);
}

/* Wait between two tries, with the lock held. false: the fetch has been stopped. */
static bool pause_fetch(struct http_client *client, const struct http_file *file, int64_t ns)
{
    int64_t until = real_now() + ns;
    struct timespec t = {(time_t)(until / WORLD_SECOND), (long)(until % WORLD_SECOND)};
    int rc = 0;
    while (rc == 0 && !atomic_load(&file->stop))
        rc = pthread_cond_timedwait(&client->stop, &client->lock, &t);
    return !atomic_load(&file->stop);
}

static int describe_failure(const struct http_fetch *fetch, enum http_outcome outcome,
                            unsigned tries, const char *cause, struct err *err)
{
    const struct http_file *file = fetch->file;
    char times[32] = "";
    if (tries > 1)
        snprintf(times, sizeof times, " (%u tries)", tries);
    if (outcome == HTTP_CHANGED)
        return err_set(err, ERR_IO,
                       "%.300s: has changed since it was opened: %s, seen at byte %" PRIu64,
                       file->shown, cause, fetch->first * HTTP_BLOCK);
    if (file->identity.len == 0)
        return err_set(err, ERR_INPUT, "%.300s: cannot be opened: %s%s", file->shown, cause, times);
    return err_set(err, ERR_IO, "%.250s: the %zu bytes at %" PRIu64 " cannot be read: %s%s",
                   file->shown, fetch_bytes(fetch), fetch->first * HTTP_BLOCK, cause, times);
}

/* Try until it succeeds, cannot succeed, or has failed often enough; with the lock held, which is
 * released during requests. */
static int run_fetch(struct http_client *client, struct http_connection *connection,
                     const struct http_fetch *fetch, struct err *err)
{
    struct http_file *file = fetch->file;
    uint8_t *block[HTTP_RUN];
    for (size_t i = 0; i < fetch->count; i++)
        block[i] = fetch->slot[i]->bytes;
    const struct http_range range = {.url = file->url,
                                     .offset = fetch->first * HTTP_BLOCK,
                                     .n = fetch_bytes(fetch),
                                     .block = block,
                                     .identity = &file->identity,
                                     .stop = &file->stop};
    char cause[HTTP_CAUSE_MAX] = "";
    enum http_outcome outcome = HTTP_STOPPED;
    int64_t pause = client->options.pause;
    unsigned most = file->failing ? 1 : HTTP_TRIES, tries = 0;
    while (!atomic_load(&file->stop)) {
        client->counts.requests++;
        pthread_mutex_unlock(&client->lock);
        outcome = http_request(connection, &range, cause);
        pthread_mutex_lock(&client->lock);
        tries++;
        if (outcome != HTTP_AGAIN || tries == most || !pause_fetch(client, file, pause))
            break;
        pause *= 2;
    }
    file->failing = outcome == HTTP_AGAIN;
    if (outcome == HTTP_DONE) {
        client->counts.bytes += fetch_bytes(fetch);
        return OK;
    }
    int rc = describe_failure(fetch, outcome, tries, cause, err);
    if (outcome == HTTP_CHANGED)
        file->change = *err;
    return rc;
}

static void leave_fetch(struct http_fetch *fetch)
{
    if (--fetch->users == 0)
        free(fetch);
}

/* Its blocks are full, or empty again. */
static void end_fetch(struct http_client *client, struct http_fetch *fetch)
{
    struct http_file *file = fetch->file;
    for (size_t i = 0; i < fetch->count; i++) {
        struct http_slot *slot = fetch->slot[i];
        slot->fetch = NULL;
        if (fetch->why.status == OK && file->opened > 0)
            http_cache_use(&client->cache, slot);
        else
            http_cache_drop(&client->cache, slot);
    }
    fetch->ended = true;
    client->fetches--;
    file->fetches--;
    http_file_release(file);
    leave_fetch(fetch);
    pthread_cond_broadcast(&client->ended);
}

int http_fetch_await(struct http_client *client, struct http_fetch *fetch, struct err *err)
{
    fetch->users++;
    while (!fetch->ended)
        pthread_cond_wait(&client->ended, &client->lock);
    int rc = fetch->why.status;
    if (rc != OK && err)
        *err = fetch->why;
    leave_fetch(fetch);
    return rc;
}

/* ---- threads ---- */

static struct http_fetch *take_fetch(struct http_client *client)
{
    struct http_fetch *fetch = client->queue;
    client->queue = fetch->next;
    if (!client->queue)
        client->queue_end = &client->queue;
    client->queued--;
    return fetch;
}

static void *thread_main(void *user)
{
    struct http_client *client = user;
    struct http_connection *connection = http_connection_create(&client->options);
    pthread_mutex_lock(&client->lock);
    for (;;) {
        while (!client->queue && !client->ending) {
            client->idle++;
            pthread_cond_wait(&client->work, &client->lock);
            client->idle--;
        }
        if (!client->queue)
            break;
        struct http_fetch *fetch = take_fetch(client);
        fetch->why.status = OK;
        if (connection)
            fetch->why.status = run_fetch(client, connection, fetch, &fetch->why);
        else
            err_set(&fetch->why, ERR_NOMEM, "%s: out of memory for a connection",
                    fetch->file->shown);
        end_fetch(client, fetch);
    }
    pthread_mutex_unlock(&client->lock);
    http_connection_free(connection);
    return NULL;
}

static bool start_thread(struct http_client *client)
{
    int rc = thread_create(&client->thread[client->threads], thread_main, client);
    client->threads += rc == 0;
    return rc == 0;
}

static void queue_fetch(struct http_client *client, struct http_fetch *fetch)
{
    fetch->users = 1;
    client->fetches++;
    fetch->file->fetches++;
    *client->queue_end = fetch;
    client->queue_end = &fetch->next;
    client->queued++;
    if (client->queued > client->idle && client->threads < HTTP_THREADS && !start_thread(client) &&
        client->threads == 0) {
        fetch = take_fetch(client);
        err_set(&fetch->why, ERR_NOMEM, "%s: no thread can be started", fetch->file->shown);
        end_fetch(client, fetch);
        return;
    }
    pthread_cond_signal(&client->work);
}

/* The blocks from `first` on that the cache lacks and has room for; NULL: none. */
static struct http_fetch *make_fetch(struct http_file *file, uint64_t first, uint64_t end)
{
    struct http_cache *cache = &file->client->cache;
    struct http_fetch *fetch = calloc(1, sizeof *fetch);
    if (!fetch)
        return NULL;
    fetch->file = file;
    fetch->first = first;
    while (fetch->count < HTTP_RUN && first < end && !http_cache_find(cache, file, first)) {
        fetch->slot[fetch->count] = http_cache_claim(cache, file, first++, fetch);
        if (!fetch->slot[fetch->count])
            break;
        fetch->count++;
    }
    if (fetch->count > 0)
        return fetch;
    free(fetch);
    return NULL;
}

void http_fetch_blocks(struct http_file *file, uint64_t first, uint64_t end)
{
    struct http_client *client = file->client;
    while (first < end) {
        if (http_cache_find(&client->cache, file, first)) {
            first++;
            continue;
        }
        struct http_fetch *fetch = make_fetch(file, first, end);
        if (!fetch)
            return;
        first += fetch->count;
        queue_fetch(client, fetch);
    }
}
