/* A faulty network between Paceline's processes: a TCP proxy in one epoll loop, with commands on
 * its standard input.
 *
 * paceline_proxy [FROM=]TARGET…         a route for each: a client of FROM (127.0.0.1 and any port)
 *                                         is connected to TARGET, both IPv4:PORT
 *
 * It prints `route N ADDRESS` for each route, then answers every line with one: `ok`, or `error`
 * and why. A line is `[ROUTE] COMMAND`, for all routes where none is named:
 *
 *   pass              as if there were no proxy; held bytes continue
 *   delay MS          each byte is delayed by MS
 *   mbit N            each direction carries no more
 *   corrupt N         one bit of every Nth byte of a direction is changed
 *   blackhole         nothing gets through, and nobody is told, not even of an end
 *   oneway up|down    the same for the other direction; `up` is from who connects
 *   reset             connections are reset, this once
 *   count             answers `up BYTES CHANGED down BYTES CHANGED connections N`
 *
 * It ends when its input does. A process that is killed behind a black hole is as silent as one
 * that hangs; but unlike a real one's, its kernel still takes bytes until the buffers are full. */
#define _GNU_SOURCE
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUTES_MAX = 64, LINE_MAX_BYTES = 256, EVENTS_MAX = 64 };

struct route {
    int listener;
    struct sockaddr_in target;
    struct fault fault;
    struct lane lane[SIDES];
};

/* A connection through us: a socket for each side. */
struct pair {
    struct pair *next;
    struct route *route;
    int fd[SIDES];
    struct flow flow[SIDES]; /* the bytes from that side */
    bool connecting;         /* the target is not connected yet */
    bool blocked[SIDES];     /* that socket takes no more for now */
    bool lost[SIDES];        /* that socket is broken; its peer may not know yet */
    uint32_t watched[SIDES]; /* events; ~0: not in the set */
};

static struct route routes[ROUTES_MAX];
static int route_count, set;
static struct pair *pairs;

static const uint32_t unwatched = UINT32_MAX;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die_with(const char *what)
{
    fprintf(stderr, "paceline_proxy: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- connections ---- */

static void watch_side(struct pair *p, enum side side, uint32_t events)
{
    if (p->watched[side] == events || p->fd[side] < 0)
        return;
    struct epoll_event e = {.events = events, .data.ptr = p};
    int op = p->watched[side] == unwatched ? EPOLL_CTL_ADD
             : events == unwatched         ? EPOLL_CTL_DEL
                                           : EPOLL_CTL_MOD;
    epoll_ctl(set, op, p->fd[side], &e);
    p->watched[side] = events;
}

/* Both sides see a reset, or the end of the stream. */
static void hang_up(struct pair *p, bool reset)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    for (int side = 0; side < SIDES; side++) {
        flow_release(&p->flow[side]);
        if (p->fd[side] >= 0 && reset)
            setsockopt(p->fd[side], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (p->fd[side] >= 0)
            close(p->fd[side]);
        p->fd[side] = -1;
    }
}

static void go_to_target(struct pair *p)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    const struct sockaddr *to = (const struct sockaddr *)&p->route->target;
    p->fd[TARGET] = fd;
    if (fd < 0 || (connect(fd, to, sizeof p->route->target) != 0 && errno != EINPROGRESS)) {
        p->lost[TARGET] = true;
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    p->connecting = true;
    watch_side(p, TARGET, EPOLLOUT);
}

static void take_in(struct route *route)
{
    int one = 1, fd = accept4(route->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct pair *p = fd < 0 ? NULL : calloc(1, sizeof *p);
    if (!p) {
        if (fd >= 0)
            close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    *p = (struct pair){
        .next = pairs, .route = route, .fd = {fd, -1}, .watched = {unwatched, unwatched}};
    pairs = p;
}

static void on_connected(struct pair *p)
{
    int code = 0;
    socklen_t len = sizeof code;
    p->connecting = false;
    if (getsockopt(p->fd[TARGET], SOL_SOCKET, SO_ERROR, &code, &len) != 0 || code != 0)
        p->lost[TARGET] = true;
}

/* Move one direction as far as possible. */
static void move_bytes(struct pair *p, enum side from, int64_t now, int64_t *next)
{
    enum side to = from == CLIENT ? TARGET : CLIENT;
    struct route *r = p->route;
    if (r->fault.held[from] || p->fd[TARGET] < 0 || p->connecting)
        return;
    if (!p->lost[from] &&
        flow_fill(&p->flow[from], p->fd[from], &r->fault, &r->lane[from], now) == FLOW_BROKEN)
        p->lost[from] = true;
    enum flow_result end =
        flow_drain(&p->flow[from], p->fd[to], &r->fault, &r->lane[from], now, next);
    p->blocked[to] = end == FLOW_BLOCKED;
    p->lost[to] |= end == FLOW_BROKEN;
}

/* A socket is broken, and the other side may learn it. */
static bool is_over(const struct pair *p)
{
    const struct fault *f = &p->route->fault;
    bool text = p->flow[CLIENT].shut && p->flow[TARGET].shut;
    return text || (p->lost[CLIENT] && !f->held[CLIENT]) || (p->lost[TARGET] && !f->held[TARGET]);
}

/* Chooses the events to wait for next. A broken socket, and one without further bytes, would report
 * its end repeatedly. */
static void watch_both(struct pair *p)
{
    for (int side = 0; side < SIDES; side++) {
        const struct flow *in = &p->flow[side];
        bool reads = !p->route->fault.held[side] && !in->ended && in->queued < FLOW_BYTES_MAX;
        uint32_t events =
            (reads ? (uint32_t)EPOLLIN : 0) | (p->blocked[side] ? (uint32_t)EPOLLOUT : 0);
        watch_side(p, (enum side)side, p->lost[side] || !events ? unwatched : events);
    }
}

/* Everything that can continue continues. Returns when something is due. */
static int64_t pump_pairs(int64_t now)
{
    int64_t next = INT64_MAX;
    for (struct pair **at = &pairs, *p; (p = *at);) {
        const struct fault *f = &p->route->fault;
        if (p->fd[TARGET] < 0 && !p->lost[TARGET] && !f->held[CLIENT] && !f->held[TARGET])
            go_to_target(p);
        move_bytes(p, CLIENT, now, &next);
        move_bytes(p, TARGET, now, &next);
        if (is_over(p)) {
            *at = p->next;
            hang_up(p, p->lost[CLIENT] || p->lost[TARGET]);
            free(p);
            continue;
        }
        if (p->fd[TARGET] >= 0 && !p->connecting)
            watch_both(p);
        at = &p->next;
    }
    return next;
}

/* ---- commands ---- */

static void reset_route(const struct route *route)
{
    for (struct pair **at = &pairs, *p; (p = *at);) {
        if (p->route != route) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        hang_up(p, true);
        free(p);
    }
}

static void count_pairs(const struct route *r)
{
    int open = 0;
    for (const struct pair *p = pairs; p; p = p->next)
        open += p->route == r;
    printf("up %llu %llu down %llu %llu connections %d\n",
           (unsigned long long)r->lane[CLIENT].bytes, (unsigned long long)r->lane[CLIENT].broken,
           (unsigned long long)r->lane[TARGET].bytes, (unsigned long long)r->lane[TARGET].broken,
           open);
}

static bool read_number(const char *text, double least, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= least && *out <= 1e12;
}

/* false: there is no such command */
static bool obey_verb(struct route *r, const char *verb, const char *argument)
{
    struct fault *f = &r->fault;
    double n = 0;
    if (strcmp(verb, "delay") == 0 && read_number(argument, 0, &n))
        f->delay = (int64_t)(n * 1e6);
    else if (strcmp(verb, "mbit") == 0 && read_number(argument, 1e-3, &n))
        f->mbit = n;
    else if (strcmp(verb, "corrupt") == 0 && read_number(argument, 1, &n))
        f->corrupt_every = (uint64_t)n;
    else if (strcmp(verb, "oneway") == 0 &&
             (strcmp(argument, "up") == 0 || strcmp(argument, "down") == 0))
        f->held[CLIENT] = !(f->held[TARGET] = strcmp(argument, "up") == 0);
    else if (*argument)
        return false;
    else if (strcmp(verb, "pass") == 0)
        *f = (struct fault){.delay = 0};
    else if (strcmp(verb, "blackhole") == 0)
        f->held[CLIENT] = f->held[TARGET] = true;
    else if (strcmp(verb, "reset") == 0)
        reset_route(r);
    else
        return false;
    return true;
}

static void run_line(char *line)
{
    char verb[16] = "", argument[16] = "";
    char *rest = line;
    long only = strtol(line, &rest, 10);
    bool one = rest != line, well = !one || (only >= 0 && only < route_count);
    int words = sscanf(rest, "%15s %15s", verb, argument);
    if (strcmp(verb, "count") == 0 && well && words == 1) {
        count_pairs(&routes[one ? only : 0]);
        return;
    }
    for (int i = 0; well && i < route_count; i++)
        if (!one || i == only)
            well = obey_verb(&routes[i], verb, argument);
    if (well)
        puts("ok");
    else
        printf("error: '%s' is no command\n", line);
}

/* false: the end of the input */
static bool read_commands(void)
{
    static char line[LINE_MAX_BYTES];
    static size_t have;
    ssize_t n = read(STDIN_FILENO, line + have, sizeof line - 1 - have);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    have += (size_t)n;
    line[have] = '\0';
    for (char *end; (end = strchr(line, '\n'));) {
        *end = '\0';
        run_line(line);
        have -= (size_t)(end + 1 - line);
        memmove(line, end + 1, have + 1);
    }
    return have < sizeof line - 1;
}

/* ---- routes ---- */

static bool parse_address(const char *text, struct sockaddr_in *out)
{
    char host[INET_ADDRSTRLEN];
    const char *colon = strchr(text, ':');
    double port = 0;
    *out = (struct sockaddr_in){.sin_family = AF_INET};
    if (!colon || (size_t)(colon - text) >= sizeof host || !read_number(colon + 1, 0, &port) ||
        port > UINT16_MAX)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    out->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &out->sin_addr) == 1;
}

static void open_route(const char *text)
{
    struct route *r = &routes[route_count];
    struct sockaddr_in at;
    char from[64] = "127.0.0.1:0", host[INET_ADDRSTRLEN];
    const char *equals = strchr(text, '=');
    socklen_t len = sizeof at;
    int one = 1;
    if (equals)
        snprintf(from, sizeof from, "%.*s", (int)(equals - text), text);
    errno = EINVAL;
    if (route_count == ROUTES_MAX || !parse_address(from, &at) ||
        !parse_address(equals ? equals + 1 : text, &r->target))
        die_with(text);
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(r->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = r};
    if (r->listener < 0 || bind(r->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(r->listener, 64) != 0 || epoll_ctl(set, EPOLL_CTL_ADD, r->listener, &e) != 0 ||
        getsockname(r->listener, (struct sockaddr *)&at, &len) != 0)
        die_with(text);
    inet_ntop(AF_INET, &at.sin_addr, host, sizeof host);
    printf("route %d %s:%d\n", route_count++, host, ntohs(at.sin_port));
}

static bool is_route(const void *of)
{
    return of >= (const void *)routes && of < (const void *)(routes + ROUTES_MAX);
}

int main(int argc, char **argv)
{
    struct epoll_event input = {.events = EPOLLIN}, event[EVENTS_MAX];
    setvbuf(stdout, NULL, _IOLBF, 0);
    set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, STDIN_FILENO, &input) != 0)
        die_with("epoll");
    for (int i = 1; i < argc; i++)
        open_route(argv[i]);
    for (bool continues = true; continues;) {
        int64_t next = pump_pairs(now_ns()), left = next - now_ns();
        int wait = next == INT64_MAX ? -1 : left > 0 ? (int)(left / 1000000 + 1) : 0;
        int n = epoll_wait(set, event, EVENTS_MAX, wait);
        bool reported = false;
        for (int i = 0; i < n; i++) {
            void *of = event[i].data.ptr;
            if (!of)
                reported = true;
            else if (is_route(of))
                take_in(of);
            else if (((struct pair *)of)->connecting)
                on_connected(of);
        }
        continues = !reported || read_commands(); /* last: it may end connections */
    }
    while (pairs)
        reset_route(pairs->route);
    return 0;
}
