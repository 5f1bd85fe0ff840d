/* Runs of blocks on their way from a server into the cache: a queue, and threads that take from it.
 * All is guarded by the client's lock, but what a thread does with a fetch that it has taken. */
#ifndef PL_REAL_HTTP_FETCH_H
#define PL_REAL_HTTP_FETCH_H

#include "real/http.h"
#include "real/http_cache.h"
#include "real/http_request.h"

#include <pthread.h>

struct http_file {
    struct remote_file remote; /* first */
    struct http_client *client;
    struct http_file *next;
    char *url, *shown; /* owned; `shown` for messages */
    struct http_identity identity;
    unsigned opened;      /* how often; 0: nobody reads it any more, */
    atomic_bool stop;     /* and its fetches end */
    unsigned fetches;     /* that have not ended */
    bool failing;         /* its last fetch has failed */
    struct err change;    /* status not OK: the file is another now */
    uint64_t first, last; /* blocks of the last read, */
    uint64_t window;      /* blocks to be fetched ahead of it, */
    uint64_t ahead;       /* and the first one that was not asked for */
};

struct http_fetch {
    struct http_fetch *next; /* in the queue */
    struct http_file *file;
    uint64_t first; /* block */
    size_t count;
    struct http_slot *slot[HTTP_RUN];
    unsigned users; /* readers that wait for it, and its thread: the last one frees it */
    bool ended;
    struct err why; /* once it has ended: its status, and a message unless that is OK */
};

struct http_client {
    struct remote remote; /* first */
    struct http_options options;
    char *ca_file;
    pthread_mutex_t lock;
    pthread_cond_t work, ended, stop; /* a fetch waits for a thread; one has ended; `ending` or the
                                         `stop` of a file was set */
    struct http_cache cache;
    struct http_file *files; /* that are open */
    struct http_fetch *queue, **queue_end;
    size_t queued, fetches; /* in the queue; that have not ended */
    pthread_t thread[HTTP_THREADS];
    size_t threads, idle;
    bool ending;
    struct http_counts counts;
};

/* Fetch those blocks of [first, end) that the cache lacks, as far as it has room. */
void http_fetch_blocks(struct http_file *file, uint64_t first, uint64_t end);

/* Wait until the fetch, which a slot of the caller's names, has ended. Its status. */
int http_fetch_await(struct http_client *client, struct http_fetch *fetch, struct err *err);

/* Free the file, if it is not open and nothing is fetched of it. */
void http_file_release(struct http_file *file);

#endif
