/* Bytes through the socket. MSG_ZEROCOPY is not used: through loopback and veth the kernel copies
 * all the same, and with its notices that is half as fast; at a gigabit a sender's copy takes two
 * per cent of a core. */
#define _GNU_SOURCE
#include "real/address.h"
#include "real/stream.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

enum {
    SILENCE_MAX_MS = 5000, /* of a peer's host that acknowledges nothing */
    PROBE_IDLE_S = 2,      /* of silence before the first keep-alive probe */
    PROBE_INTERVAL_S = 1,
    PROBE_COUNT = 3,
    LOW_WATER = 384 * 1024,     /* bytes */
    NOT_SENT_MAX = 1024 * 1024, /* bytes that the kernel keeps before they continue the way: more
                                   are only copied earlier, and out of the cache by then */
};

static ssize_t bytes_moved(ssize_t n)
{
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? STREAM_NONE : STREAM_BROKEN;
}

static ssize_t tcp_send(struct stream *s, const struct iovec *part, size_t parts)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)part, .msg_iovlen = parts};
    return bytes_moved(sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

static ssize_t tcp_receive(struct stream *s, const struct iovec *part, size_t parts)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)part, .msg_iovlen = parts};
    ssize_t n = recvmsg(s->fd, &message, MSG_DONTWAIT);
    return n == 0 ? STREAM_END : bytes_moved(n);
}

/* Within a long message the receiver need not wake for each packet. The rest of the message arrives
 * in any case, or the connection ends. */
static void tcp_expect(struct stream *s, size_t left)
{
    int want = left >= 2 * LOW_WATER ? LOW_WATER : left >= LOW_WATER / 2 ? (int)left : 1;
    if (want != s->low_water)
        setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &want, sizeof want);
    s->low_water = want;
}

static int tcp_shut(struct stream *s)
{
    return shutdown(s->fd, SHUT_WR) == 0 ? OK : ERR_PEER;
}

const struct transport_ops transport_tcp = {
    .name = "tcp",
    .align = 1,
    .sums = true,
    .send = tcp_send,
    .receive = tcp_receive,
    .expect = tcp_expect,
    .shut = tcp_shut,
};

static void set_option(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

/* A silent host is noticed within SILENCE_MAX_MS, also while nothing is sent. */
struct stream stream_tcp(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_MAX);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MAX_MS);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_INTERVAL_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBE_COUNT);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    return (struct stream){.ops = &transport_tcp, .fd = fd};
}

bool stream_is_local(const struct stream *s)
{
    struct address here = {.len = sizeof here.u}, there = {.len = sizeof there.u};
    if (getsockname(s->fd, &here.u.any, &here.len) != 0 ||
        getpeername(s->fd, &there.u.any, &there.len) != 0)
        return false;
    if (address_is_loopback(&here) && address_is_loopback(&there))
        return true;
    address_set_port(&here, 0);
    address_set_port(&there, 0);
    if (here.u.any.sa_family != there.u.any.sa_family)
        return false;
    if (here.u.any.sa_family == AF_INET)
        return here.u.v4.sin_addr.s_addr == there.u.v4.sin_addr.s_addr;
    return memcmp(&here.u.v6.sin6_addr, &there.u.v6.sin6_addr, sizeof here.u.v6.sin6_addr) == 0 &&
           here.u.v6.sin6_scope_id == there.u.v6.sin6_scope_id;
}
