#define _GNU_SOURCE
#include "cli/page_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define UPDATE_EVERY_S 0.25
#define SILENCE_S      2.0 /* a viewer hears at least so often, which finds those that are gone */

enum { HOST_BYTES = 128, CHUNK_BYTES = 32 << 10 };

/* A connection that receives events. */
struct viewer {
    struct page_server *server;
    struct MHD_Connection *connection;
    struct live_viewer at;
    char *text; /* what is being sent */
    size_t length, sent;
    bool due;       /* there may be more to send */
    bool suspended; /* the connection waits for page_server_tick */
    bool used;
};

struct page_server {
    struct MHD_Daemon *daemon;
    struct live_page *page;
    char token[PL_KEY_TEXT_SIZE];
    bool has_token;
    unsigned port;
    pthread_mutex_t lock; /* of the viewers */
    struct viewer viewer[PAGE_VIEWERS_MAX];
    bool stops;
    double updated, spoken; /* when viewers were last woken: for news, for anything */
};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- who may see it ---- */

/* In a time that does not depend on where they differ. */
static bool are_equal(const char *given, const char *token)
{
    size_t n = strlen(token), m = strlen(given);
    unsigned char differ = n != m;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(token[i] ^ given[i < m ? i : m]);
    return differ == 0;
}

/* Does the Host name this machine's loopback, so that no other site's name has led here? */
static bool names_loopback(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(host, names[i], n) == 0 && (host[n] == '\0' || host[n] == ':'))
            return true;
    }
    return false;
}

static bool may_see(const struct page_server *server, struct MHD_Connection *connection)
{
    const char *given = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token");
    const char *header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (!server->has_token)
        return names_loopback(host);
    if (!given && header && strncasecmp(header, "Bearer ", 7) == 0)
        given = header + 7;
    return given && are_equal(given, server->token);
}

/* ---- answers ---- */

static enum MHD_Result queue_response(struct MHD_Connection *connection, unsigned status,
                                      const char *type, struct MHD_Response *response)
{
    enum MHD_Result result = MHD_NO;
    if (!response)
        return MHD_NO;
    if (MHD_add_response_header(response, "Content-Type", type) == MHD_YES &&
        MHD_add_response_header(response, "Cache-Control", "no-store") == MHD_YES &&
        MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES &&
        MHD_add_response_header(response, "X-Frame-Options", "DENY") == MHD_YES &&
        MHD_add_response_header(response, "Referrer-Policy", "no-referrer") == MHD_YES &&
        (status != MHD_HTTP_METHOD_NOT_ALLOWED ||
         MHD_add_response_header(response, "Allow", "GET, HEAD") == MHD_YES))
        result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status,
                                   const char *text)
{
    char *copy = strdup(text);
    return copy ? queue_response(
                      connection, status, "text/plain; charset=utf-8",
                      MHD_create_response_from_buffer(strlen(copy), copy, MHD_RESPMEM_MUST_FREE))
                : MHD_NO;
}

/* `write` makes the body. */
static enum MHD_Result answer_written(const struct page_server *server,
                                      struct MHD_Connection *connection, const char *type,
                                      void (*write)(struct live_page *page, FILE *out))
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return MHD_NO;
    write(server->page, out);
    if (fclose(out) != 0) {
        free(text);
        return MHD_NO;
    }
    return queue_response(connection, MHD_HTTP_OK, type,
                          MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE));
}

/* ---- events ---- */

/* With the lock held: make the next text. */
static void write_update(struct viewer *v)
{
    free(v->text);
    v->text = NULL;
    v->length = v->sent = 0;
    FILE *out = open_memstream(&v->text, &v->length);
    if (!out)
        return;
    live_page_update(v->server->page, out, &v->at);
    if (fclose(out) != 0) {
        free(v->text);
        v->text = NULL;
        v->length = 0;
    }
}

/* Called by the server's thread for more of a viewer's answer. */
static ssize_t read_events(void *user, uint64_t position, char *buffer, size_t room)
{
    struct viewer *v = user;
    struct page_server *server = v->server;
    ssize_t n = 0;
    (void)position;
    pthread_mutex_lock(&server->lock);
    if (v->sent == v->length && v->due && !v->at.has_end) {
        v->due = false;
        write_update(v);
        v->at.has_end |= server->stops; /* nothing follows */
    }
    if (v->sent < v->length) {
        size_t left = v->length - v->sent;
        n = (ssize_t)(left < room ? left : room);
        memcpy(buffer, v->text + v->sent, (size_t)n);
        v->sent += (size_t)n;
    } else if (v->at.has_end || server->stops) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        v->suspended = true;
        MHD_suspend_connection(v->connection);
    }
    pthread_mutex_unlock(&server->lock);
    return n;
}

static void end_viewer(void *user)
{
    struct viewer *v = user;
    struct page_server *server = v->server;
    pthread_mutex_lock(&server->lock);
    free(v->text);
    *v = (struct viewer){0};
    pthread_mutex_unlock(&server->lock);
}

static struct viewer *begin_viewer(struct page_server *server, struct MHD_Connection *connection)
{
    struct viewer *free_one = NULL;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < PAGE_VIEWERS_MAX && !free_one && !server->stops; i++)
        if (!server->viewer[i].used)
            free_one = &server->viewer[i];
    if (free_one)
        *free_one =
            (struct viewer){.server = server, .connection = connection, .due = true, .used = true};
    pthread_mutex_unlock(&server->lock);
    return free_one;
}

static enum MHD_Result answer_events(struct page_server *server, struct MHD_Connection *connection)
{
    struct viewer *v = begin_viewer(server, connection);
    if (!v)
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                           "as many viewers as there may be are connected\n");
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK_BYTES,
                                                                      read_events, v, end_viewer);
    if (!response)
        end_viewer(v);
    return queue_response(connection, MHD_HTTP_OK, "text/event-stream", response);
}

/* ---- requests ---- */

static enum MHD_Result answer_path(struct page_server *server, struct MHD_Connection *connection,
                                   const char *path)
{
    if (strcmp(path, "/healthz") == 0)
        return answer_text(connection, MHD_HTTP_OK, "ok\n");
    if (!may_see(server, connection))
        return answer_text(connection, MHD_HTTP_FORBIDDEN,
                           server->has_token ? "the token is missing or wrong\n"
                                             : "the page is for this machine alone\n");
    if (strcmp(path, "/") == 0)
        return answer_written(server, connection, "text/html; charset=utf-8", live_page_html);
    if (strcmp(path, "/metrics") == 0)
        return answer_written(server, connection, "text/plain; version=0.0.4; charset=utf-8",
                              live_page_metrics);
    if (strcmp(path, "/events") == 0)
        return answer_events(server, connection);
    return answer_text(connection, MHD_HTTP_NOT_FOUND, "there is no such page\n");
}

/* Called with the headers, and, unless that is the answer to another method, again without a
 * body. */
static enum MHD_Result answer_request(void *user, struct MHD_Connection *connection,
                                      const char *path, const char *method, const char *version,
                                      const char *body, size_t *body_length, void **state)
{
    static const char seen;
    (void)version, (void)body;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    if (!*state) {
        *state = (void *)(uintptr_t)&seen;
        return MHD_YES;
    }
    if (*body_length > 0)
        return MHD_NO;
    return answer_path(user, connection, path);
}

/* ---- the server ---- */

/* "HOST:PORT", with a numeric host. NULL after a message. */
static struct addrinfo *find_address(const char *command, const char *listen)
{
    char host[HOST_BYTES];
    const char *colon = strrchr(listen, ':');
    size_t n = colon ? (size_t)(colon - listen) : 0;
    bool brackets = n > 2 && listen[0] == '[' && listen[n - 1] == ']';
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    snprintf(host, sizeof host, "%.*s", (int)(brackets ? n - 2 : n), listen + brackets);
    if (n == 0 || n >= sizeof host || colon[1] == '\0' ||
        getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, colon + 1, &hints,
                    &found) != 0) {
        fprintf(stderr, "paceline %s: --page: expected PORT or HOST:PORT, not %s\n", command,
                listen);
        return NULL;
    }
    return found;
}

/* Its thread takes no signal: those are the run's. Without an address it has no thread. */
static struct MHD_Daemon *start_daemon(struct page_server *server, const struct addrinfo *at)
{
    sigset_t all, before;
    unsigned flags = MHD_USE_AUTO | MHD_ALLOW_SUSPEND_RESUME;
    flags |= at ? MHD_USE_INTERNAL_POLLING_THREAD : MHD_USE_NO_LISTEN_SOCKET;
    flags |= at && at->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, answer_request, server, MHD_OPTION_SOCK_ADDR, at ? at->ai_addr : NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)PAGE_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)PAGE_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)PAGE_HEADER_BYTES_MAX,
        MHD_OPTION_END);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return daemon;
}

struct page_server *page_server_start(const char *command, const struct page_options *options,
                                      struct live_page *page)
{
    struct addrinfo *at = options->listen ? find_address(command, options->listen) : NULL;
    struct page_server *server = at || !options->listen ? calloc(1, sizeof *server) : NULL;
    if (server) {
        server->page = page;
        server->has_token = options->token != NULL;
        snprintf(server->token, sizeof server->token, "%s", options->token ? options->token : "");
        pthread_mutex_init(&server->lock, NULL);
        server->daemon = start_daemon(server, at);
    }
    if (at)
        freeaddrinfo(at);
    if (server && server->daemon) {
        const union MHD_DaemonInfo *info =
            MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
        server->port = info ? info->port : 0;
        return server;
    }
    if (at)
        fprintf(stderr, "paceline %s: --page %s: cannot listen: %s\n", command, options->listen,
                strerror(errno));
    free(server);
    return NULL;
}

unsigned page_server_port(const struct page_server *server)
{
    return server->port;
}

bool page_server_take(struct page_server *server, int fd)
{
    const struct sockaddr at = {.sa_family = AF_UNIX};
    return MHD_add_connection(server->daemon, fd, &at, sizeof at) == MHD_YES;
}

void page_server_answer(struct page_server *server)
{
    (void)MHD_run(server->daemon);
}

/* With the lock held. */
static void wake_viewers(struct page_server *server)
{
    for (int i = 0; i < PAGE_VIEWERS_MAX; i++) {
        struct viewer *v = &server->viewer[i];
        if (!v->used)
            continue;
        v->due = true;
        if (v->suspended)
            MHD_resume_connection(v->connection);
        v->suspended = false;
    }
}

/* The lock is free soon, or the next tick finds it so. */
void page_server_tick(struct page_server *server)
{
    double now = seconds_now();
    if (now - server->updated < UPDATE_EVERY_S)
        return;
    if (pthread_mutex_trylock(&server->lock) != 0)
        return;
    if (live_page_has_news(server->page) || now - server->spoken >= SILENCE_S) {
        server->updated = server->spoken = now;
        wake_viewers(server);
    }
    pthread_mutex_unlock(&server->lock);
}

static bool has_viewers(struct page_server *server)
{
    bool any = false;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < PAGE_VIEWERS_MAX; i++)
        any = any || server->viewer[i].used;
    wake_viewers(server);
    pthread_mutex_unlock(&server->lock);
    return any;
}

void page_server_stop(struct page_server *server)
{
    if (!server)
        return;
    pthread_mutex_lock(&server->lock);
    server->stops = true;
    pthread_mutex_unlock(&server->lock);
    for (int i = 0; i < 100 && has_viewers(server); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    MHD_stop_daemon(server->daemon);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
