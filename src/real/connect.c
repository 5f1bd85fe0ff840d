#define _GNU_SOURCE
#include "real/connect.h"

#include "real/handshake.h"
#include "real/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ACCEPT_PAUSE   (WORLD_SECOND / 10)
#define DRIVER_ANSWERS WORLD_SECOND /* then it is called again: its machine may be starting */
#define EVICT_AGE      (WORLD_SECOND / 10) /* that a connection has for its hello in any case */
#define STRIKE_LASTS   (10 * WORLD_SECOND)
#define PLAIN_EVERY    (60 * WORLD_SECOND)

enum {
    ACCEPT_TURN = 64, /* connections taken before others are served */
    STRIKES_MAX = 3,  /* each halves the time that a network's connections have */
};

int io_socket(const struct address *address)
{
    return socket(address->u.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int io_connected(int fd)
{
    int code = 0;
    struct address here = {.len = sizeof here.u}, there = {.len = sizeof there.u};
    socklen_t len = sizeof code;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) != 0)
        return errno;
    if (code)
        return code;
    if (getpeername(fd, &there.u.any, &there.len) != 0 ||
        getsockname(fd, &here.u.any, &here.len) != 0)
        return errno;
    bool itself = here.len == there.len && memcmp(&here.u, &there.u, here.len) == 0;
    return itself ? ECONNREFUSED : 0;
}

/* ---- links ---- */

bool connect_watch(struct io *io, int op, int fd, uint32_t events, void *ptr)
{
    struct epoll_event event = {.events = events, .data.ptr = ptr};
    return epoll_ctl(io->epoll, op, fd, &event) == 0;
}

bool link_is_in_handshake(const struct link *link)
{
    return link->state == LINK_CONNECTING || link->state == LINK_CHALLENGE ||
           link->state == LINK_HANDSHAKE || link->state == LINK_SEALING;
}

/* It has a deadline. */
static bool is_timed(const struct link *link)
{
    return link_is_in_handshake(link) || link->ended;
}

struct link *connect_link(struct node *node, const struct stream *stream, enum link_state state,
                          struct peer *peer)
{
    struct io *io = &node->io;
    struct link *link = calloc(1, sizeof *link);
    struct stream mine = *stream;
    uint32_t events = state == LINK_CONNECTING ? EPOLLOUT : EPOLLIN;
    if (!link || link_init(link) != OK ||
        !connect_watch(io, EPOLL_CTL_ADD, mine.fd, events, link)) {
        if (link)
            link_discard(link);
        free(link);
        stream_close(&mine);
        return NULL;
    }
    link->stream = mine;
    link->state = state;
    link->peer = peer;
    link->wants_out = state == LINK_CONNECTING;
    link->begun = real_now();
    link->deadline = link->begun + node->limits.hello;
    link->next = io->links;
    if (io->links)
        io->links->prev = link;
    io->links = link;
    if (link_is_in_handshake(link)) {
        io->timed++;
        link->half_open = peer == NULL;
        io->half_open += link->half_open;
    }
    if (mine.ops->ready)
        connect_mapped(io, link);
    return link;
}

void connect_mapped(struct io *io, struct link *link)
{
    link->next_mapped = io->mapped;
    io->mapped = link;
}

void connect_ended(struct node *node, struct link *link)
{
    if (!is_timed(link))
        node->io.timed++;
    link->ended = true;
    link->wants_out = true; /* for good: the other side does not read */
    link->deadline = real_now() + node->limits.flush;
    epoll_ctl(node->io.epoll, EPOLL_CTL_DEL, link->stream.fd, NULL);
}

/* Those that wait to be accepted may have its place. */
static void leave_half_open(struct io *io, struct link *link)
{
    if (!link->half_open)
        return;
    link->half_open = false;
    io->half_open--;
    if (io->accept_after) {
        io->accept_after = 0;
        connect_listening(io, true);
    }
}

static void link_free(struct node *node, struct link *link, bool was_handshake)
{
    struct io *io = &node->io;
    struct link **at = &io->mapped;
    io->timed -= was_handshake || link->ended;
    leave_half_open(io, link);
    link_release(node, link);
    while (*at && *at != link)
        at = &(*at)->next_mapped;
    if (*at)
        *at = link->next_mapped;
    /* A process that is forked at this moment has the socket too, and so would epoll. */
    epoll_ctl(io->epoll, EPOLL_CTL_DEL, link->stream.fd, NULL);
    stream_close(&link->stream);
    *(link->prev ? &link->prev->next : &io->links) = link->next;
    if (link->next)
        link->next->prev = link->prev;
    free(link);
}

void connect_end(struct node *node, struct link *link, bool was_handshake)
{
    struct peer *peer = link->peer;
    if (peer) {
        node_lock(node);
        peer_lost(node, peer); /* this ends the sends of the link, too */
        peer->link[link->stripe] = NULL;
        for (int i = 0; i < STRIPES_MAX && !peer->cut; i++)
            peer->cut = peer->link[i] != NULL;
        if (peer->cut)
            io_tend(node, peer);
        node_unlock(node);
    }
    link_free(node, link, was_handshake);
}

const char *peer_name(const struct peer *peer, char name[NAME_SIZE])
{
    if (peer->number == WORLD_DRIVER)
        return "the driver";
    snprintf(name, NAME_SIZE, "worker %u", peer->number);
    return name;
}

static void print_other_end(const struct link *link, char where[ADDRESS_TEXT_MAX])
{
    struct address from = {.len = sizeof from.u};
    if (getpeername(link->stream.fd, &from.u.any, &from.len) == 0)
        address_print(&from, where, ADDRESS_TEXT_MAX);
    else
        snprintf(where, ADDRESS_TEXT_MAX, "an address that is no longer valid");
}

/* After something was sent or received: keep watching as is needed, or end it. */
void connect_finish(struct node *node, struct link *link, int rc, bool was_handshake)
{
    char name[NAME_SIZE], where[ADDRESS_TEXT_MAX];
    if (rc == ERR_PEER && link->stripe > 0 && link_is_in_handshake(link)) {
        connect_ended(node, link); /* its node may be closing, and announce that on the first one */
        return;
    }
    if (rc != OK && rc != ERR_FULL) {
        if (rc != ERR_PEER && link->peer) {
            print_other_end(link, where);
            log_warn(&node->log, "the connection to %s, at %s, is closed: %s",
                     peer_name(link->peer, name), where, status_text(rc));
        } else if (rc != ERR_PEER) {
            connect_report_stranger(node, link, status_text(rc));
        } else if (link->half_open && link->in.have > 0) {
            connect_report_stranger(node, link, "it has ended within its hello");
        }
        connect_end(node, link, was_handshake);
        return;
    }
    if (was_handshake && !link_is_in_handshake(link))
        node->io.timed--;
}

int connect_send(struct node *node, struct link *link)
{
    int rc = link_write(node, link);
    bool wants_out = rc == ERR_FULL;
    if ((rc == OK || rc == ERR_FULL) && wants_out != link->wants_out) {
        if (!link->stream.ops->ready)
            connect_watch(&node->io, EPOLL_CTL_MOD, link->stream.fd,
                          EPOLLIN | (wants_out ? EPOLLOUT : 0), link);
        link->wants_out = wants_out;
    }
    return rc;
}

/* ---- connecting ---- */

static void dial_peer(struct node *node, struct peer *peer, uint32_t stripe)
{
    int fd = io_socket(&peer->address);
    bool begun = fd >= 0 && (connect(fd, &peer->address.u.any, peer->address.len) == 0 ||
                             errno == EINPROGRESS);
    struct link *link = NULL;
    if (begun) {
        struct stream stream = stream_tcp(fd);
        link = connect_link(node, &stream, LINK_CONNECTING, peer);
    } else if (fd >= 0) {
        close(fd);
    }
    node_lock(node);
    if (link) {
        link->dialled = true;
        link->stripe = stripe;
        peer->link[stripe] = link;
        if (peer->number == WORLD_DRIVER && stripe == 0)
            link->deadline = real_now() + DRIVER_ANSWERS;
    } else {
        peer_lost(node, peer);
        peer->cut = true; /* close the other stripes */
        io_tend(node, peer);
    }
    node_unlock(node);
}

void connect_dial(struct node *node, struct peer *peer)
{
    bool first = !peer->link[0];
    for (uint32_t i = first ? 0 : 1; i < (first ? 1 : peer->stripes); i++)
        if (!peer->link[i])
            dial_peer(node, peer, i);
}

/* It was to be connected to, and cannot be: both ends by their addresses. */
static void report_unreached(const struct node *node, const struct link *link, const char *why)
{
    char here[ADDRESS_TEXT_MAX], there[ADDRESS_TEXT_MAX];
    address_print(&node->address, here, sizeof here);
    address_print(&link->peer->address, there, sizeof there);
    if (link->peer->number == WORLD_DRIVER) /* called until it replies */
        log_debug(&node->log, "the driver at %s cannot be connected to from %s: %s", there, here,
                  why);
    else
        log_warn(&node->log, "worker %u at %s cannot be connected to from worker %u at %s: %s",
                 link->peer->number, there, node->world.self, here, why);
}

int connect_made(struct node *node, struct link *link)
{
    int code = io_connected(link->stream.fd);
    if (code) {
        report_unreached(node, link, strerror(code));
        return ERR_PEER;
    }
    link->state = LINK_CHALLENGE;
    link->wants_out = false;
    connect_watch(&node->io, EPOLL_CTL_MOD, link->stream.fd, EPOLLIN, link);
    return OK;
}

/* ---- accepting ---- */

static struct strikes *strikes_of(struct io *io, const struct link *link)
{
    return &io->strikes[link->network % STRIKE_NETWORKS];
}

static void add_strike(struct io *io, const struct link *link, int64_t now)
{
    struct strikes *strikes = strikes_of(io, link);
    if (now >= strikes->until)
        strikes->count = 0;
    if (strikes->count < STRIKES_MAX)
        strikes->count++;
    strikes->until = now + STRIKE_LASTS;
}

/* The time that a connection has for its hello. */
static int64_t find_patience(struct node *node, const struct link *link)
{
    const struct strikes *strikes = strikes_of(&node->io, link);
    return node->limits.hello >> (link->begun < strikes->until ? strikes->count : 0);
}

static struct stranger_reason *find_reason(struct io *io, const char *why)
{
    size_t i = 0;
    while (i < STRANGER_REASONS - 1 && io->reasons[i].why && io->reasons[i].why != why)
        i++;
    io->reasons[i].why = why;
    return &io->reasons[i];
}

void connect_known(struct node *node, struct link *link)
{
    strikes_of(&node->io, link)->count = 0;
    leave_half_open(&node->io, link);
}

void connect_report_stranger(struct node *node, const struct link *link, const char *why)
{
    struct stranger_reason *reason = find_reason(&node->io, why);
    char where[ADDRESS_TEXT_MAX];
    int64_t now = real_now();
    add_strike(&node->io, link, now);
    reason->count++;
    if (now < reason->report_at)
        return;
    print_other_end(link, where);
    if (reason->count > 1)
        log_info(&node->log, "%llu connections are closed, the last one from %s: %s",
                 (unsigned long long)reason->count, where, why);
    else
        log_info(&node->log, "a connection from %s is closed: %s", where, why);
    reason->count = 0;
    reason->report_at = now + WORLD_SECOND;
}

void connect_listening(struct io *io, bool on)
{
    if (on == io->accepting || io->listener < 0)
        return;
    io->accepting = on;
    connect_watch(io, EPOLL_CTL_MOD, io->listener, on ? EPOLLIN : 0, &io->listener);
}

/* Of the connections without a hello the oldest one from the network that has most of them: where
 * one address opens many, they make room for each other and for those of all others. */
static struct link *find_evicted(const struct io *io)
{
    enum { NETWORKS = 1024 }; /* two with one hash count as one */
    uint16_t count[NETWORKS] = {0}, most = 0;
    struct link *oldest = NULL;
    for (const struct link *link = io->links; link; link = link->next) {
        uint16_t n = link->half_open ? ++count[link->network % NETWORKS] : 0;
        most = n > most ? n : most;
    }
    for (struct link *link = io->links; link; link = link->next) /* the newest first */
        if (link->half_open && count[link->network % NETWORKS] == most)
            oldest = link;
    return oldest;
}

static bool evict_half_open(struct node *node)
{
    struct link *link = node->io.half_open > 0 ? find_evicted(&node->io) : NULL;
    if (!link)
        return false;
    connect_report_stranger(node, link, "others are waiting, and it has sent nothing");
    connect_end(node, link, true);
    return true;
}

/* As many connections as may be have not sent their hellos: one that has had time for it ends. If
 * none has, the next ones wait until one has: false */
static bool make_room(struct node *node)
{
    struct io *io = &node->io;
    if (io->half_open < io->half_open_max)
        return true;
    int64_t ripe = find_evicted(io)->begun + EVICT_AGE;
    if (ripe <= real_now())
        return evict_half_open(node);
    io->accept_after = ripe;
    connect_listening(io, false);
    return false;
}

/* The process has no descriptor left, and no stranger that could give up one: the next connection
 * in the queue is closed, or the queue would be ready for ever. false: not even that */
static bool refuse_next(struct io *io)
{
    close(io->spare);
    int fd = accept4(io->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    io->spare = eventfd(0, EFD_CLOEXEC);
    return fd >= 0;
}

/* true: there may be another one waiting. */
static bool accept_next(struct node *node)
{
    struct io *io = &node->io;
    struct address from = {.len = sizeof from.u};
    if (!make_room(node))
        return false;
    int fd = accept4(io->listener, &from.u.any, &from.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        struct stream stream = stream_tcp(fd);
        struct link *link = connect_link(node, &stream, LINK_HANDSHAKE, NULL);
        if (!link)
            return true;
        link->network = address_network(&from);
        link->deadline = link->begun + find_patience(node, link);
        if (handshake_challenge(node, link) != OK)
            connect_end(node, link, true);
        return true;
    }
    if (errno == EINTR || errno == ECONNABORTED)
        return true;
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
        return false;
    if (evict_half_open(node) || refuse_next(io))
        return true;
    io->accept_after = real_now() + ACCEPT_PAUSE;
    connect_listening(io, false);
    return false;
}

void connect_accept(struct node *node)
{
    for (int i = 0; i < ACCEPT_TURN && accept_next(node); i++)
        continue;
}

/* When the next of those that wait for a pacer may continue. */
static int64_t pace_due(const struct io *io)
{
    int64_t out = io->pace_out.awaited ? pacer_opens(&io->pace_out) : WORLD_FOREVER;
    int64_t in = io->pace_in.awaited ? pacer_opens(&io->pace_in) : WORLD_FOREVER;
    return out < in ? out : in;
}

/* Close connections without a hello in time, and accept again after a pause. */
void connect_sweep(struct node *node)
{
    struct io *io = &node->io;
    int64_t now = real_now();
    for (struct link *link = io->timed ? io->links : NULL, *next; link; link = next) {
        next = link->next;
        if (!is_timed(link) || link->deadline > now)
            continue;
        if (link->dialled && link_is_in_handshake(link) && link->stripe == 0)
            report_unreached(node, link, "it does not answer");
        if (link->half_open)
            connect_report_stranger(node, link, "it has not sent its hello in time");
        connect_end(node, link, link_is_in_handshake(link));
    }
    if (io->paced && pace_due(io) <= now) {
        node_lock(node);
        peers_resume(node);
        node_unlock(node);
    }
    if (io->warn_plain && io->warn_plain <= now) {
        log_warn(&node->log, "connections to other hosts are not encrypted (--insecure): each "
                             "machine on their way can read and change the traffic");
        io->warn_plain = now + PLAIN_EVERY;
    }
    if (!io->accepting && io->accept_after <= now) {
        io->accept_after = 0;
        connect_listening(io, true);
    }
}

int64_t connect_deadline(const struct io *io)
{
    int64_t until = io->accept_after ? io->accept_after : WORLD_FOREVER;
    for (const struct link *link = io->timed ? io->links : NULL; link; link = link->next)
        if (is_timed(link) && link->deadline < until)
            until = link->deadline;
    if (io->paced && pace_due(io) < until)
        until = pace_due(io);
    if (io->warn_plain && io->warn_plain < until)
        until = io->warn_plain;
    return until;
}
