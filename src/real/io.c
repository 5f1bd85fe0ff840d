#define _GNU_SOURCE
#include "real/io.h"

#include "real/greet.h"
#include "real/node.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 64,
    SCRATCH_BYTES = 256 * 1024,
    BACKLOG = 128,
    NAME_SIZE = 24,
    SILENCE_MAX_MS = 5000, /* of a peer's host that acknowledges nothing */
};

#define ACCEPT_PAUSE (WORLD_SECOND / 10)

int io_socket(const struct address *address)
{
    return socket(address->u.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void set_options(int fd)
{
    int on = 1;
    unsigned silence = SILENCE_MAX_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
}

/* ---- links ---- */

static bool watch(struct io *io, int op, int fd, uint32_t events, void *ptr)
{
    struct epoll_event event = {.events = events, .data.ptr = ptr};
    return epoll_ctl(io->epoll, op, fd, &event) == 0;
}

static bool is_greeting(const struct link *link)
{
    return link->state == LINK_CONNECTING || link->state == LINK_GREETING;
}

/* Takes fd. NULL: no memory */
static struct link *link_new(struct node *node, int fd, enum link_state state, struct peer *peer)
{
    struct io *io = &node->io;
    struct link *link = calloc(1, sizeof *link);
    uint32_t events = state == LINK_CONNECTING ? EPOLLOUT : EPOLLIN;
    if (!link || !watch(io, EPOLL_CTL_ADD, fd, events, link)) {
        free(link);
        close(fd);
        return NULL;
    }
    set_options(fd);
    link->fd = fd;
    link->state = state;
    link->peer = peer;
    link->wants_out = state == LINK_CONNECTING;
    link->deadline = real_now() + node->limits.hello;
    link->next = io->links;
    if (io->links)
        io->links->prev = link;
    io->links = link;
    if (is_greeting(link)) {
        io->greeting++;
        io->half_open += peer == NULL;
    }
    return link;
}

static void link_free(struct node *node, struct link *link, bool was_greeting)
{
    struct io *io = &node->io;
    if (was_greeting) {
        io->greeting--;
        io->half_open -= !link->dialled;
    }
    link_release(node, link);
    close(link->fd);
    *(link->prev ? &link->prev->next : &io->links) = link->next;
    if (link->next)
        link->next->prev = link->prev;
    free(link);
}

/* The connection is over, whoever ended it. */
static void link_end(struct node *node, struct link *link, bool was_greeting)
{
    struct peer *peer = link->peer;
    if (peer) {
        node_lock(node);
        peer->link = NULL;
        peer_lost(node, peer);
        node_unlock(node);
    }
    link_free(node, link, was_greeting);
}

static const char *peer_name(const struct peer *peer, char name[NAME_SIZE])
{
    if (peer->number == WORLD_DRIVER)
        return "the driver";
    snprintf(name, NAME_SIZE, "worker %u", peer->number);
    return name;
}

/* After something was sent or received: keep watching as is needed, or end it. */
static void settle(struct node *node, struct link *link, int rc, bool was_greeting)
{
    char name[NAME_SIZE];
    if (rc != OK && rc != ERR_FULL) {
        if (rc != ERR_PEER && link->peer)
            log_warn(&node->log, "the connection to %s is closed: %s", peer_name(link->peer, name),
                     status_text(rc));
        else if (rc != ERR_PEER)
            log_info(&node->log, "a stranger's connection is closed: %s", status_text(rc));
        link_end(node, link, was_greeting);
        return;
    }
    if (was_greeting && !is_greeting(link)) {
        node->io.greeting--;
        node->io.half_open -= !link->dialled;
    }
}

static int send_queued(struct node *node, struct link *link)
{
    int rc = link_write(node, link);
    bool wants_out = rc == ERR_FULL;
    if ((rc == OK || rc == ERR_FULL) && wants_out != link->wants_out) {
        watch(&node->io, EPOLL_CTL_MOD, link->fd, EPOLLIN | (wants_out ? EPOLLOUT : 0), link);
        link->wants_out = wants_out;
    }
    return rc;
}

/* ---- connecting ---- */

static void dial(struct node *node, struct peer *peer)
{
    int fd = io_socket(&peer->address);
    bool begun = fd >= 0 && (connect(fd, &peer->address.u.any, peer->address.len) == 0 ||
                             errno == EINPROGRESS);
    struct link *link = NULL;
    if (begun)
        link = link_new(node, fd, LINK_CONNECTING, peer);
    else if (fd >= 0)
        close(fd);
    node_lock(node);
    if (link) {
        link->dialled = true;
        peer->link = link;
    } else {
        peer_lost(node, peer);
    }
    node_unlock(node);
}

static int connected(struct node *node, struct link *link)
{
    int code = 0;
    socklen_t len = sizeof code;
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &code, &len) != 0 || code != 0) {
        log_warn(&node->log, "worker %u cannot be connected to: %s", link->peer->number,
                 strerror(code ? code : errno));
        return ERR_PEER;
    }
    link->state = LINK_GREETING;
    greet_begin(node, link);
    return send_queued(node, link);
}

/* ---- accepting ---- */

static void watch_listener(struct io *io, bool on)
{
    if (on == io->accepting || io->listener < 0)
        return;
    io->accepting = on;
    watch(io, EPOLL_CTL_MOD, io->listener, on ? EPOLLIN : 0, &io->listener);
}

static void accept_some(struct node *node)
{
    struct io *io = &node->io;
    while (io->half_open < HALF_OPEN_MAX) {
        int fd = accept4(io->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            link_new(node, fd, LINK_GREETING, NULL);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            io->accept_after = real_now() + ACCEPT_PAUSE;
            watch_listener(io, false);
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
    watch_listener(io, false); /* until some have said who they are, or have been closed */
}

/* Close who is late, and accept again when there is room. */
static void sweep(struct node *node)
{
    struct io *io = &node->io;
    int64_t now = real_now();
    for (struct link *link = io->greeting ? io->links : NULL, *next; link; link = next) {
        next = link->next;
        if (is_greeting(link) && link->deadline <= now)
            link_end(node, link, true);
    }
    if (!io->accepting && io->half_open < HALF_OPEN_MAX && io->accept_after <= now) {
        io->accept_after = 0;
        watch_listener(io, true);
    }
}

/* ---- the loop ---- */

static int timeout_ms(const struct io *io, int64_t until)
{
    if (io->accept_after && io->accept_after < until)
        until = io->accept_after;
    for (const struct link *link = io->greeting ? io->links : NULL; link; link = link->next)
        if (is_greeting(link) && link->deadline < until)
            until = link->deadline;
    if (until == WORLD_FOREVER)
        return -1;
    int64_t left = until - real_now();
    return left > 0 ? (int)(left / 1000000 + 1) : 0;
}

static void serve(struct node *node, struct link *link, uint32_t events)
{
    bool was_greeting = is_greeting(link);
    int rc = OK;
    if (link->state == LINK_CONNECTING)
        rc = connected(node, link);
    else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        rc = link_read(node, link, node->io.scratch, SCRATCH_BYTES);
    if (rc == OK && (events & EPOLLOUT))
        rc = send_queued(node, link);
    settle(node, link, rc, was_greeting);
}

/* Wait for events, at most until then, and serve them. */
static void serve_events(struct node *node, int64_t until)
{
    struct io *io = &node->io;
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(io->epoll, events, EVENTS_MAX, timeout_ms(io, until));
    for (int i = 0; i < n; i++) {
        void *of = events[i].data.ptr;
        uint64_t count;
        if (of == &io->event)
            (void)!read(io->event, &count, sizeof count);
        else if (of == &io->listener)
            accept_some(node);
        else
            serve(node, of, events[i].events);
    }
    sweep(node);
}

void io_tend(struct node *node, struct peer *peer)
{
    struct io *io = &node->io;
    if (!peer->tended) {
        peer->tended = true;
        peer->next_tended = io->to_tend;
        io->to_tend = peer;
    }
    if (!io->woken && io->event >= 0) {
        uint64_t one = 1;
        io->woken = true;
        (void)!write(io->event, &one, sizeof one);
    }
}

static void tend(struct node *node, struct peer *peer, bool cut, bool to_dial)
{
    struct link *link = peer->link;
    if (cut) {
        if (link)
            link_end(node, link, is_greeting(link));
    } else if (to_dial) {
        dial(node, peer);
    } else if (link && !is_greeting(link) && !link->wants_out) {
        settle(node, link, send_queued(node, link), false);
    }
}

/* Do what tasks have asked for. false: they have asked to end. */
static bool tend_all(struct node *node)
{
    struct io *io = &node->io;
    node_lock(node);
    while (io->to_tend) {
        struct peer *peer = io->to_tend;
        bool cut = peer->cut, to_dial = peer->dial;
        io->to_tend = peer->next_tended;
        peer->tended = peer->cut = peer->dial = false;
        node_unlock(node);
        tend(node, peer, cut, to_dial);
        node_lock(node);
    }
    io->woken = false;
    bool go_on = !io->closing;
    node_unlock(node);
    return go_on;
}

/* ---- the end ---- */

/* Turn an open link round, once all has been sent; what is not worth waiting for ends. */
static void finish_link(struct node *node, struct link *link)
{
    if (is_greeting(link)) {
        node_lock(node);
        bool waits =
            link->dialled && link->peer->state == PEER_AWAITED && peer_has_frame(link->peer);
        node_unlock(node);
        if (!waits)
            link_end(node, link, true);
        return;
    }
    link->state = LINK_DRAINING;
    if (link->shut)
        return;
    int rc = send_queued(node, link);
    if (rc == OK) {
        link->shut = true; /* the other side reads to the end, and closes */
        rc = shutdown(link->fd, SHUT_WR) == 0 ? OK : ERR_PEER;
    }
    settle(node, link, rc, false);
}

static void finish(struct node *node)
{
    struct io *io = &node->io;
    int64_t deadline = real_now() + node->limits.flush;
    watch_listener(io, false);
    close(io->listener);
    io->listener = -1;
    for (;;) {
        for (struct link *link = io->links, *next; link; link = next) {
            next = link->next;
            finish_link(node, link);
        }
        if (!io->links || real_now() >= deadline)
            return;
        serve_events(node, deadline);
        tend_all(node);
    }
}

static int io_main(void *arg)
{
    struct node *node = arg;
    while (tend_all(node))
        serve_events(node, WORLD_FOREVER);
    finish(node);
    return OK;
}

/* ---- opening and closing ---- */

static int listen_at(struct node *node, struct err *err)
{
    struct io *io = &node->io;
    char where[ADDRESS_TEXT_MAX];
    int on = 1;
    address_print(&node->address, where, sizeof where);
    io->listener = io_socket(&node->address);
    if (io->listener < 0)
        return err_set(err, ERR_IO, "listen %s: no socket: %s", where, strerror(errno));
    setsockopt(io->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(io->listener, &node->address.u.any, node->address.len) != 0 ||
        listen(io->listener, BACKLOG) != 0)
        return err_set(err, ERR_INPUT, "listen %s: %s", where, strerror(errno));
    node->address.len = sizeof node->address.u;
    if (getsockname(io->listener, &node->address.u.any, &node->address.len) != 0)
        return err_set(err, ERR_IO, "listen %s: %s", where, strerror(errno));
    return OK;
}

int io_open(struct node *node, struct err *err)
{
    struct io *io = &node->io;
    io->listener = io->event = io->epoll = -1;
    int rc = listen_at(node, err);
    if (rc != OK)
        return rc;
    io->scratch = malloc(SCRATCH_BYTES);
    if (!io->scratch)
        return err_set(err, ERR_NOMEM, "out of memory for a receive buffer");
    io->epoll = epoll_create1(EPOLL_CLOEXEC);
    io->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    io->accepting = true;
    if (io->epoll < 0 || io->event < 0 ||
        !watch(io, EPOLL_CTL_ADD, io->event, EPOLLIN, &io->event) ||
        !watch(io, EPOLL_CTL_ADD, io->listener, EPOLLIN, &io->listener))
        return err_set(err, ERR_IO, "out of descriptors for epoll: %s", strerror(errno));
    return OK;
}

int io_start(struct node *node, int driver, struct err *err)
{
    struct io *io = &node->io;
    if (driver >= 0) {
        node_lock(node);
        struct peer *peer = peer_make(node, WORLD_DRIVER);
        struct link *link = NULL;
        if (peer)
            link = link_new(node, driver, LINK_OPEN, peer);
        else
            close(driver);
        if (link) {
            link->dialled = true;
            peer_up(node, peer, link);
        }
        node_unlock(node);
        if (!link)
            return err_set(err, ERR_NOMEM, "out of memory for the connection to the driver");
    }
    io->task.fn = io_main;
    io->task.arg = node;
    if (task_start(node, &io->task, "io") != OK)
        return err_set(err, ERR_NOMEM, "the I/O thread cannot be started");
    return OK;
}

void io_stop(struct node *node)
{
    struct io *io = &node->io;
    uint64_t one = 1;
    node_lock(node);
    io->closing = true;
    (void)!write(io->event, &one, sizeof one);
    while (io->task.state == TASK_RUNS)
        pthread_cond_wait(&node->tasks.ended, &node->lock);
    node_unlock(node);
}

void io_release(struct node *node)
{
    struct io *io = &node->io;
    while (io->links)
        link_end(node, io->links, is_greeting(io->links));
    const int fds[] = {io->listener, io->event, io->epoll};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(io->scratch);
}
