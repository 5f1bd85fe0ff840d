#define _GNU_SOURCE
#include "real/io.h"

#include "real/connect.h"
#include "real/node.h"
#include "real/ucx.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SCRATCH_BYTES = 256 * 1024,
    BACKLOG = 1024,
    DESCRIPTORS_SHARE = 4 /* of the process's descriptors one in so many may be a stranger's */
};

/* ---- serving ---- */

static void serve_link(struct node *node, struct link *link, uint32_t events)
{
    bool was_handshake = link_is_in_handshake(link);
    int rc = OK;
    if (link->state == LINK_CONNECTING)
        rc = connect_made(node, link);
    else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        rc = link_read(node, link, node->io.scratch, SCRATCH_BYTES);
    if (rc == OK && (events & EPOLLOUT))
        rc = connect_send(node, link);
    connect_finish(node, link, rc, was_handshake);
}

int io_timeout_ms(int64_t until, int64_t now)
{
    enum { NS_PER_MS = 1000000 };
    if (until == WORLD_FOREVER)
        return -1;
    if (until <= now)
        return 0;
    uint64_t left = (uint64_t)until - (uint64_t)now;
    uint64_t ms = left / NS_PER_MS + (left % NS_PER_MS > 0);
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

int io_poll(struct io *io, struct epoll_event *events, int64_t until)
{
    int timeout = 0;
    if (until != 0 && !io_arm(io)) {
        int64_t due = connect_deadline(io);
        timeout = io_timeout_ms(due < until ? due : until, real_now());
    }
    return epoll_wait(io->epoll, events, IO_EVENTS_MAX, timeout);
}

static void take_kick(struct node *node)
{
    uint64_t count;
    (void)!read(node->io.event, &count, sizeof count);
    node_lock(node);
    node->io.kicked = false;
    node_unlock(node);
}

bool io_arm(struct io *io)
{
    bool ready = ucx_arm(io->ucx);
    for (struct link *link = io->mapped; link; link = link->next_mapped)
        if (link->stream.ops->arm(&link->stream, link->wants_out))
            ready = true;
    return ready;
}

static void serve_mapped(struct node *node)
{
    for (struct link *link = node->io.mapped, *next; link; link = next) {
        next = link->next_mapped;
        uint32_t events = link->stream.ops->ready(&link->stream, link->wants_out);
        if (events)
            serve_link(node, link, events);
    }
}

/* Events of the kernel's, then those it knows nothing of. */
void io_serve(struct node *node, const struct epoll_event *events, int n)
{
    struct io *io = &node->io;
    bool incoming = false; /* taken at the end: that may close a link of which there is an event */
    for (int i = 0; i < n; i++) {
        void *of = events[i].data.ptr;
        if (of == &io->event)
            take_kick(node);
        else if (of == &io->listener)
            incoming = true;
        else if (of == &io->ucx)
            continue;
        else if (((struct link *)of)->stream.ops->on_message)
            ((struct link *)of)->stream.ops->on_message(&((struct link *)of)->stream);
        else
            serve_link(node, of, events[i].events);
    }
    ucx_progress(io->ucx);
    serve_mapped(node);
    if (incoming)
        connect_accept(node);
}

void io_kick(struct io *io)
{
    uint64_t one = 1;
    if (io->kicked || io->event < 0)
        return;
    io->kicked = true;
    (void)!write(io->event, &one, sizeof one);
}

void io_tend(struct node *node, struct peer *peer)
{
    struct io *io = &node->io;
    if (!peer->tended) {
        peer->tended = true;
        peer->next_tended = io->to_tend;
        io->to_tend = peer;
    }
    role_summon(node);
}

static void tend_peer(struct node *node, struct peer *peer, bool cut, bool to_dial)
{
    if (to_dial && !cut)
        connect_dial(node, peer);
    for (int i = 0; i < STRIPES_MAX; i++) {
        struct link *link = peer->link[i];
        if (link && cut)
            connect_end(node, link, link_is_in_handshake(link));
        else if (link && !link_is_in_handshake(link) && !link->wants_out)
            connect_finish(node, link, connect_send(node, link), false);
    }
}

void io_tend_all(struct node *node)
{
    struct io *io = &node->io;
    while (io->to_tend) {
        struct peer *peer = io->to_tend;
        bool cut = peer->cut, to_dial = peer->dial;
        io->to_tend = peer->next_tended;
        peer->tended = peer->cut = peer->dial = false;
        node_unlock(node);
        tend_peer(node, peer, cut, to_dial);
        node_lock(node);
    }
}

/* ---- the end ---- */

/* Close an open link in order once all is sent; other links end at once. */
static void finish_link(struct node *node, struct link *link)
{
    if (link_is_in_handshake(link)) {
        node_lock(node);
        bool waits = link->dialled && link->peer->state == PEER_AWAITED && outbox_waits(link->peer);
        waits = waits || link->stripe > 0; /* a reply may come, and more after it */
        node_unlock(node);
        if (!waits)
            connect_end(node, link, true);
        return;
    }
    link->state = LINK_DRAINING;
    if (link->shut || link->ended)
        return;
    int rc = connect_send(node, link);
    node_lock(node);
    bool waits = outbox_waits(link->peer); /* for credit */
    for (int i = 0; i < STRIPES_MAX && !waits; i++) {
        const struct link *other = link->peer->link[i];
        waits = other && !other->ended && (other->out.going || link_is_in_handshake(other));
    }
    node_unlock(node);
    if (rc == OK && !waits) {
        link->shut = true; /* the other side reads to the end, and closes */
        rc = link->stream.ops->shut(&link->stream);
    }
    connect_finish(node, link, rc, false);
}

static void finish_io(struct node *node)
{
    struct io *io = &node->io;
    int64_t deadline = real_now() + node->limits.flush;
    connect_listening(io, false);
    close(io->listener);
    io->listener = -1;
    for (;;) {
        for (struct link *link = io->links, *next; link; link = next) {
            next = link->next;
            finish_link(node, link);
        }
        if (!io->links || real_now() >= deadline)
            return;
        struct epoll_event events[IO_EVENTS_MAX];
        io_serve(node, events, io_poll(io, events, deadline));
        connect_sweep(node);
        node_lock(node);
        io_tend_all(node);
        node_unlock(node);
    }
}

/* Give up the role and sleep until an event; serve it, unless tasks have done so meanwhile. */
static void watch_until_event(struct node *node)
{
    struct io *io = &node->io;
    struct role *role = &io->role;
    struct epoll_event events[IO_EVENTS_MAX];
    uint64_t turns = role->turns;
    role_leave(node);
    role->watch_until = connect_deadline(io);
    role->watching = true;
    int timeout = role->unseen ? 0 : io_timeout_ms(role->watch_until, real_now());
    node_unlock(node);
    int n = epoll_wait(io->epoll, events, IO_EVENTS_MAX, timeout);
    node_lock(node);
    role->watching = false;
    if (role->turns != turns) {
        if (role->asleep)
            io_kick(io); /* the sleeper that this should have woken */
        return;
    }
    role->holder = &io->task;
    node_unlock(node);
    io_serve(node, events, n);
    connect_sweep(node);
    node_lock(node);
    role_leave(node);
}

static int io_main(void *arg)
{
    struct node *node = arg;
    bool served = true;
    node_lock(node);
    node->io.role.holder = NULL;
    while ((served = role_await(node))) {
        io_tend_all(node);
        if (node->io.closing)
            break;
        watch_until_event(node);
    }
    node_unlock(node);
    if (served)
        finish_io(node);
    return OK;
}

/* ---- opening and closing ---- */

/* Listen at `address`, and set it to what the kernel made of it. 0, or errno; *fd is < 0 if not
 * even a socket could be made. */
static int listen_once(struct address *address, int *fd)
{
    int on = 1;
    *fd = io_socket(address);
    if (*fd < 0)
        return errno;
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(*fd, &address->u.any, address->len) != 0 || listen(*fd, BACKLOG) != 0)
        return errno;
    address->len = sizeof address->u;
    return getsockname(*fd, &address->u.any, &address->len) == 0 ? 0 : errno;
}

/* The kernel may choose the port of a driver that has just died. The next driver needs that port,
 * and other workers would call this one instead: choose again while it is taken. */
static int open_listener(struct node *node)
{
    const struct address wish = node->address;
    int first, code = listen_once(&node->address, &node->io.listener);
    if (code || address_port(&wish) > 0 || address_port(&node->address) != node->driver_port)
        return code;
    first = node->io.listener;
    node->address = wish;
    code = listen_once(&node->address, &node->io.listener);
    close(first);
    return code;
}

static int listen_at(struct node *node, struct err *err)
{
    struct io *io = &node->io;
    char where[ADDRESS_TEXT_MAX];
    address_print(&node->address, where, sizeof where);
    int why = open_listener(node);
    if (why == EADDRINUSE && node->any_port) {
        log_warn(&node->log, "listen %s: another process has that port; takes one that is free",
                 where);
        close(io->listener);
        address_set_port(&node->address, 0);
        why = open_listener(node);
    }
    if (io->listener < 0)
        return err_set(err, ERR_IO, "listen %s: no socket: %s", where, strerror(why));
    if (why)
        return err_set(err, ERR_INPUT, "listen %s: %s%s", where, strerror(why),
                       why == EADDRINUSE ? ": give another port, or 0 for any that is free"
                       : why == EADDRNOTAVAIL
                           ? ": that is no address of this host; give one of its own"
                           : "");
    return OK;
}

static size_t half_open_max(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return HALF_OPEN_MAX;
    size_t share = (size_t)limit.rlim_cur / DESCRIPTORS_SHARE;
    return share < 1 ? 1 : share < HALF_OPEN_MAX ? share : HALF_OPEN_MAX;
}

int io_open(struct node *node, struct err *err)
{
    struct io *io = &node->io;
    io->listener = io->event = io->epoll = io->spare = -1;
    io->half_open_max = half_open_max();
    int rc = listen_at(node, err);
    if (rc != OK)
        return rc;
    io->scratch = malloc(SCRATCH_BYTES);
    if (!io->scratch)
        return err_set(err, ERR_NOMEM, "out of memory for a receive buffer");
    io->epoll = epoll_create1(EPOLL_CLOEXEC);
    io->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    io->spare = eventfd(0, EFD_CLOEXEC);
    io->accepting = true;
    if (io->epoll < 0 || io->event < 0 ||
        !connect_watch(io, EPOLL_CTL_ADD, io->event, EPOLLIN, &io->event) ||
        !connect_watch(io, EPOLL_CTL_ADD, io->listener, EPOLLIN, &io->listener))
        return err_set(err, ERR_IO, "out of descriptors for epoll: %s", strerror(errno));
    if (node->ucx)
        io->ucx = ucx_open(&node->log, !node->plain);
    if (io->ucx && !connect_watch(io, EPOLL_CTL_ADD, ucx_fd(io->ucx), EPOLLIN, &io->ucx))
        return err_set(err, ERR_IO, "UCX cannot be watched: %s", strerror(errno));
    return OK;
}

static bool start_driver(struct node *node, const struct stream *driver,
                         const struct address *address)
{
    bool narrow = driver->ops->ready || node->stripes == 1;
    node_lock(node);
    struct peer *peer = peer_make(node, WORLD_DRIVER);
    struct link *link = NULL;
    if (peer)
        link = connect_link(node, driver, LINK_OPEN, peer);
    else
        stream_close(&(struct stream){
            .fd = driver->fd, .shm = driver->shm, .line = driver->line, .seal = driver->seal});
    if (link) {
        link->dialled = true;
        peer->address = *address;
        peer->dial = !narrow;
        peer_up(node, peer, link, narrow ? 1 : node->stripes);
    }
    node_unlock(node);
    return link != NULL;
}

int io_start(struct node *node, const struct stream *driver, const struct address *address,
             struct err *err)
{
    struct io *io = &node->io;
    if (driver && !start_driver(node, driver, address))
        return err_set(err, ERR_NOMEM, "out of memory for the connection to the driver");
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
    pthread_cond_signal(&io->task.wake);
    while (io->task.state == TASK_RUNS)
        pthread_cond_wait(&node->tasks.ended, &node->lock);
    node_unlock(node);
}

void io_release(struct node *node)
{
    struct io *io = &node->io;
    while (io->links)
        connect_end(node, io->links, link_is_in_handshake(io->links));
    const int fds[] = {io->listener, io->event, io->epoll, io->spare};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    ucx_close(io->ucx);
    free(io->scratch);
}
