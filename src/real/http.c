#include "real/http.h"

#include "base/fault.h"
#include "real/http_fetch.h"
#include "real/real_task.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLOTS_MIN = HTTP_RUN,
    WINDOW_MIN = 4, /* blocks ahead, of a reader that has read on once */
    SKIP_MAX = 4    /* blocks that such a reader may leave out */
};

static const int64_t CONNECT_USUAL = 10 * WORLD_SECOND, STALL_USUAL = 20 * WORLD_SECOND,
                     PAUSE_USUAL = 3 * WORLD_SECOND / 2;
static const size_t CACHE_USUAL = (size_t)64 << 20;

static struct http_file *file_of(struct remote_file *remote)
{
    return (struct http_file *)remote;
}

static struct http_client *client_of(struct remote *remote)
{
    return (struct http_client *)remote;
}

/* ---- opening ---- */

/* The file, if it is open and what it was; opened once more. */
static struct http_file *find_file(struct http_client *client, const char *url)
{
    struct http_file *file = client->files;
    while (file && (strcmp(file->url, url) != 0 || file->change.status != OK))
        file = file->next;
    if (file)
        file->opened++;
    return file;
}

static struct http_file *make_file(struct http_client *client, const char *url)
{
    size_t room = strlen(url) + sizeof "http://***@?***";
    struct http_file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->remote.ops = client->remote.ops;
    file->client = client;
    file->opened = 1;
    file->url = strdup(url);
    file->shown = malloc(room);
    if (file->url && file->shown) {
        remote_shown(url, file->shown, room);
        return file;
    }
    file->opened = 0;
    http_file_release(file);
    return NULL;
}

/* Nobody reads it any more; a fetch of it may still end. */
static void forget_file(struct http_client *client, struct http_file *file)
{
    struct http_file **at = &client->files;
    while (*at && *at != file)
        at = &(*at)->next;
    if (*at)
        *at = file->next;
    atomic_store(&file->stop, true);
    pthread_cond_broadcast(&client->stop);
    http_cache_drop_file(&client->cache, file);
    http_file_release(file);
}

/* The slot of a block, full, or as one that is being filled. Where there is no room, wait for it.
 * ERR_NOMEM: there is none */
static int find_slot(struct http_client *client, struct http_file *file, uint64_t number,
                     struct http_slot **out, struct err *err)
{
    while (!(*out = http_cache_find(&client->cache, file, number))) {
        http_fetch_blocks(file, number, number + 1);
        if ((*out = http_cache_find(&client->cache, file, number)))
            break;
        if (client->fetches == 0)
            return err_set(err, ERR_NOMEM, "%.300s: out of memory for a block", file->shown);
        pthread_cond_wait(&client->ended, &client->lock);
    }
    return OK;
}

/* The slot of a block, full. A fetch ends, since each request has a deadline. */
static int have_slot(struct http_client *client, struct http_file *file, uint64_t number,
                     struct http_slot **out, struct err *err)
{
    for (;;) {
        int rc = find_slot(client, file, number, out, err);
        if (rc == OK && !(*out)->fetch)
            return OK;
        if (rc == OK)
            rc = http_fetch_await(client, (*out)->fetch, err);
        if (rc != OK)
            return rc;
    }
}

static int open_file(struct remote *remote, const char *url, struct remote_file **out,
                     struct err *err)
{
    struct http_client *client = client_of(remote);
    struct http_slot *first;
    int rc = OK;
    pthread_mutex_lock(&client->lock);
    struct http_file *file = find_file(client, url);
    if (!file) {
        file = make_file(client, url);
        rc = file ? have_slot(client, file, 0, &first, err)
                  : err_set(err, ERR_NOMEM, "data: out of memory for a URL");
        if (rc == OK) {
            file->remote.len = file->identity.len;
            file->next = client->files;
            client->files = file;
        } else if (file) {
            file->opened = 0;
            forget_file(client, file);
        }
    }
    pthread_mutex_unlock(&client->lock);
    if (rc == OK)
        *out = &file->remote;
    return rc;
}

static void close_file(struct remote_file *remote)
{
    struct http_file *file = file_of(remote);
    struct http_client *client = file->client;
    pthread_mutex_lock(&client->lock);
    if (--file->opened == 0)
        forget_file(client, file);
    pthread_mutex_unlock(&client->lock);
}

/* ---- reading ---- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Fetch the blocks [first, end) of a read, and more where it continues the one before. */
static void fetch_ahead(struct http_client *client, struct http_file *file, uint64_t first,
                        uint64_t end)
{
    uint64_t blocks = (file->remote.len + HTTP_BLOCK - 1) / HTTP_BLOCK;
    uint64_t most = min_u64(HTTP_AHEAD, client->cache.count / 4);
    bool follows = first >= file->first && first <= file->last + SKIP_MAX;
    if (!follows)
        file->window = first == 0 ? min_u64(HTTP_RUN, most) : 0; /* all of it may be wanted */
    else if (end - 1 > file->last)
        file->window = file->window == 0 ? WINDOW_MIN : min_u64(2 * file->window, most);
    if (!follows || file->ahead < first)
        file->ahead = first;
    file->first = first;
    file->last = end - 1;
    uint64_t until = min_u64(end + file->window, blocks), step = min_u64(file->window, HTTP_RUN);
    while (file->ahead < end ||
           (file->ahead < until && (file->ahead + step <= until || until == blocks))) {
        uint64_t next = min_u64(file->ahead + HTTP_RUN, until);
        http_fetch_blocks(file, file->ahead, next);
        file->ahead = next;
    }
}

/* At most HTTP_RUN blocks of a read. */
static int read_some(struct http_client *client, struct http_file *file, uint64_t offset,
                     uint8_t *to, size_t n, struct err *err)
{
    if (file->change.status != OK) {
        if (err)
            *err = file->change;
        return file->change.status;
    }
    fetch_ahead(client, file, offset / HTTP_BLOCK, (offset + n - 1) / HTTP_BLOCK + 1);
    int rc = OK;
    while (rc == OK && n > 0) {
        uint64_t within = offset % HTTP_BLOCK;
        size_t take = (size_t)min_u64(n, HTTP_BLOCK - within);
        struct http_slot *slot;
        rc = have_slot(client, file, offset / HTTP_BLOCK, &slot, err);
        if (rc != OK)
            return rc;
        http_cache_use(&client->cache, slot);
        memcpy(to, slot->bytes + within, take);
        to += take;
        offset += take;
        n -= take;
    }
    return rc;
}

static int read_file(struct remote_file *remote, uint64_t offset, void *out, size_t n,
                     struct err *err)
{
    struct http_file *file = file_of(remote);
    struct http_client *client = file->client;
    int rc = OK;
    PL_ASSERT(offset <= remote->len && n <= remote->len - offset);
    pthread_mutex_lock(&client->lock);
    for (size_t done = 0, some; rc == OK && done < n; done += some) {
        uint64_t at = offset + done;
        some = (size_t)min_u64(n - done, HTTP_RUN * HTTP_BLOCK - at % HTTP_BLOCK);
        rc = read_some(client, file, at, (uint8_t *)out + done, some, err);
    }
    pthread_mutex_unlock(&client->lock);
    return rc;
}

/* ---- the client ---- */

static const struct remote_ops ops = {
    .open = open_file,
    .read = read_file,
    .close = close_file,
};

static bool init_locks(struct http_client *client)
{
    pthread_cond_t *cond[] = {&client->work, &client->ended, &client->stop};
    if (pthread_mutex_init(&client->lock, NULL) != 0)
        return false;
    for (size_t i = 0; i < 3; i++)
        if (task_init_cond(cond[i]) != OK) {
            while (i-- > 0)
                pthread_cond_destroy(cond[i]);
            pthread_mutex_destroy(&client->lock);
            return false;
        }
    return true;
}

static void free_memory(struct http_client *client)
{
    http_cache_release(&client->cache);
    free(client->ca_file);
    free(client);
}

struct remote *http_create(const struct http_options *options)
{
    struct http_client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    struct http_options *o = &client->options;
    *o = *options;
    o->connect = o->connect > 0 ? o->connect : CONNECT_USUAL;
    o->stall = o->stall > 0 ? o->stall : STALL_USUAL;
    o->pause = o->pause > 0 ? o->pause : PAUSE_USUAL;
    o->cache_bytes = o->cache_bytes > 0 ? o->cache_bytes : CACHE_USUAL;
    o->ca_file = client->ca_file = options->ca_file ? strdup(options->ca_file) : NULL;
    client->remote.ops = &ops;
    client->queue_end = &client->queue;
    size_t slots = o->cache_bytes / HTTP_BLOCK;
    bool ok = !options->ca_file || client->ca_file;
    if (!ok || !http_cache_init(&client->cache, slots < SLOTS_MIN ? SLOTS_MIN : slots) ||
        !init_locks(client)) {
        free_memory(client);
        return NULL;
    }
    return &client->remote;
}

void http_free(struct remote *remote)
{
    if (!remote)
        return;
    struct http_client *client = client_of(remote);
    pthread_mutex_lock(&client->lock);
    for (struct http_file *file; (file = client->files);) { /* lost by a call that broke off */
        file->opened = 0;
        forget_file(client, file);
    }
    client->ending = true;
    pthread_cond_broadcast(&client->work);
    pthread_mutex_unlock(&client->lock);
    for (size_t i = 0; i < client->threads; i++)
        pthread_join(client->thread[i], NULL);
    pthread_cond_destroy(&client->work);
    pthread_cond_destroy(&client->ended);
    pthread_cond_destroy(&client->stop);
    pthread_mutex_destroy(&client->lock);
    free_memory(client);
}

struct http_counts http_counts(struct remote *remote)
{
    struct http_client *client = client_of(remote);
    pthread_mutex_lock(&client->lock);
    struct http_counts counts = client->counts;
    counts.held = client->cache.held * HTTP_BLOCK;
    pthread_mutex_unlock(&client->lock);
    return counts;
}
