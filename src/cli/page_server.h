/* The server of a run's live page (`--page`): HTTP/1.1, GET and HEAD of a fixed list of paths, read
 * only. One thread serves everybody; connections, viewers, headers and idle time are limited, and
 * nobody's request makes the run wait. */
#ifndef PL_CLI_PAGE_SERVER_H
#define PL_CLI_PAGE_SERVER_H

#include "cli/live_page.h"
#include "paceline/key.h"

#include <stdbool.h>

enum {
    PAGE_CONNECTIONS_MAX = 64,        /* further ones wait until one ends */
    PAGE_VIEWERS_MAX = 16,            /* of these may receive events; a further one gets 503 */
    PAGE_HEADER_BYTES_MAX = 16 << 10, /* of a connection, answer included */
    PAGE_IDLE_S = 10,                 /* then a connection ends */
};

struct page_options {
    /* "127.0.0.1:8080", a number; port 0: one that is free. NULL: no port and no thread; the
     * caller hands connections over and has them answered. */
    const char *listen;
    /* Viewers must show it, as `?token=` or `Authorization: Bearer`. NULL: everybody who
     * reaches the address, which must be loopback; requests must then name a loopback host, so
     * that a page of another site cannot have a browser read this one. */
    const char *token;
};

struct page_server;

/* Serve `page`, which is borrowed until page_server_stop. NULL after a message on stderr. */
struct page_server *page_server_start(const char *command, const struct page_options *options,
                                      struct live_page *page);

/* The port in use. */
unsigned page_server_port(const struct page_server *server);

/* Of a server without a port: answer a further connection, the socket `fd`, which the server now
 * owns (closed where false); and answer what has arrived, without waiting. */
bool page_server_take(struct page_server *server, int fd);
void page_server_answer(struct page_server *server);

/* Viewers get what is new; called by the run's thread, often. */
void page_server_tick(struct page_server *server);

/* Viewers get the rest, for which they have a second. NULL allowed. */
void page_server_stop(struct page_server *server);

#endif
