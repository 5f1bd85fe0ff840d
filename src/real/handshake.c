#define _GNU_SOURCE
#include "real/handshake.h"

#include "real/connect.h"
#include "real/node.h"
#include "real/shm.h"
#include "real/ucx.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static struct hello own_hello(const struct node *node, uint32_t peer)
{
    return (struct hello){
        .version = PROTOCOL_VERSION,
        .run = node->run,
        .node = node->world.self,
        .peer = peer,
        .port = address_port(&node->address),
        .token = node->asks_token,
    };
}

/* A socket that has sent nothing takes that much at once. */
static int put_bytes(const struct link *link, const uint8_t *bytes, size_t n)
{
    ssize_t sent = send(link->stream.fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == (ssize_t)n ? OK : ERR_PEER;
}

/* Write the connecting side's hello, followed by the token. */
static void write_first(const struct node *node, const struct hello *hello,
                        uint8_t out[HELLO_SIZE + TOKEN_SIZE])
{
    hello_encode(hello, out);
    memcpy(out + HELLO_SIZE, node->token, TOKEN_SIZE);
}

/* Compare in a time that does not depend on the number of equal bytes. */
static bool is_token(const struct node *node, const uint8_t given[TOKEN_SIZE])
{
    volatile uint8_t differs = 0;
    for (size_t i = 0; i < TOKEN_SIZE; i++)
        differs = (uint8_t)(differs | (node->token[i] ^ given[i]));
    return differs == 0;
}

/* That there are to be several connections, or shared memory or UCX instead. */
static void propose_transports(const struct node *node, struct stream *stream, struct hello *hello)
{
    hello->stripes = node->stripes > 1 ? (uint8_t)node->stripes : 0;
    if (!node->no_shm && hello->stripe == 0 && stream_is_local(stream))
        shm_offer(stream, hello);
    if (hello->stripe == 0)
        ucx_offer(node->io.ucx, stream, hello);
}

static int check_reply(struct stream *stream, const struct hello *reply)
{
    int rc = shm_answered(stream, reply);
    return rc == OK ? ucx_answered(stream, reply) : rc;
}

/* How many there will be after these hellos; past TCP, one. */
static uint32_t agreed_stripes(const struct hello *first, const struct hello *reply)
{
    return reply->shm || reply->ucx || first->stripes == 0 ? 1 : first->stripes;
}

int handshake_begin(struct node *node, struct link *link)
{
    struct hello hello = own_hello(node, link->peer->number);
    hello.stripe = (uint8_t)link->stripe;
    propose_transports(node, &link->stream, &hello);
    uint8_t bytes[HELLO_SIZE + TOKEN_SIZE];
    write_first(node, &hello, bytes);
    return put_bytes(link, bytes, sizeof bytes);
}

/* The reason to refuse a connection that was made to us, judged by its hello and token alone. */
static enum hello_refusal judge_hello(const struct node *node, const struct hello *hello,
                                      const uint8_t token[TOKEN_SIZE])
{
    if (hello->version != PROTOCOL_VERSION)
        return REFUSED_VERSION;
    if (node->asks_token && !is_token(node, token))
        return REFUSED_TOKEN;
    if (node_is_driver(node) && hello->stripe == 0) {
        if (hello->run != 0 && hello->run != node->run)
            return REFUSED_RUN;
        bool was_here = hello->run == node->run && hello->node < WORLD_DRIVER; /* has a number */
        return hello->node == WORLD_ANY || was_here ? REFUSED_NOT : REFUSED_NUMBER;
    }
    if (hello->run != node->run)
        return REFUSED_RUN;
    bool later = node_is_driver(node) || hello->node > node->world.self;
    return later && hello->node < WORLD_DRIVER && hello->peer == node->world.self ? REFUSED_NOT
                                                                                  : REFUSED_NUMBER;
}

/* Find its entry in the address book. The lock is held. */
static enum hello_refusal admit_link(struct node *node, struct link *link,
                                     const struct hello *hello)
{
    struct peers *peers = &node->peers;
    if (peers->up >= PEERS_UP_MAX)
        return REFUSED_FULL;
    bool numbers = node_is_driver(node) && hello->node == WORLD_ANY;
    uint32_t number = numbers ? peer_give_number(node) : hello->node;
    if (node_is_driver(node) && !numbers && !node->resumed_at && number >= peers->next_number)
        return REFUSED_NUMBER; /* no worker has that number */
    struct peer *peer = number < peers->numbers ? peer_make(node, number) : NULL;
    if (!peer)
        return REFUSED_FULL;
    if (node_is_driver(node) && number >= peers->next_number)
        peers->next_number = number + 1;
    if (node_is_driver(node) && !numbers) /* it may try again */
        peer_keep_number(node, number);
    if (node_is_driver(node) && peer->state == PEER_DOWN)
        peer_revive(node, peer); /* the old connection may not have ended: the worker will try
                                    again */
    if (peer->state != PEER_AWAITED || peer->link[0])
        return REFUSED_NUMBER;
    link->peer = peer;
    return REFUSED_NOT;
}

/* The same for one more connection to a peer that is up. */
static enum hello_refusal admit_stripe(struct node *node, struct link *link,
                                       const struct hello *hello)
{
    struct peer *peer = peer_find(node, hello->node);
    if (!peer || peer->state != PEER_UP || hello->stripe >= peer->stripes ||
        peer->link[hello->stripe])
        return REFUSED_NUMBER;
    link->peer = peer;
    link->stripe = hello->stripe;
    return REFUSED_NOT;
}

/* Both hellos were exchanged: open the link. ERR_PEER: the peer was dropped meanwhile. */
static int open_link(struct node *node, struct link *link, uint32_t stripes)
{
    struct peer *peer = link->peer;
    if (link->stream.ops->ready)
        connect_mapped(&node->io, link);
    node_lock(node);
    bool expected = peer->state == (link->stripe ? PEER_UP : PEER_AWAITED);
    if (expected)
        link->state = LINK_OPEN;
    if (expected && link->stripe > 0) {
        peer_wider(node, peer, link);
    } else if (expected) {
        peer_up(node, peer, link, stripes);
        peer->dial = link->dialled && stripes > 1;
    }
    node_unlock(node);
    return expected ? OK : ERR_PEER;
}

static int take_stranger(struct node *node, struct link *link, const struct hello *hello)
{
    enum hello_refusal refusal = judge_hello(node, hello, link->in.head + HELLO_SIZE);
    if (refusal == REFUSED_NOT) {
        node_lock(node);
        refusal = hello->stripe ? admit_stripe(node, link, hello) : admit_link(node, link, hello);
        node_unlock(node);
    }
    struct hello reply = own_hello(node, link->peer ? link->peer->number : hello->node);
    reply.refusal = refusal;
    reply.stripe = hello->stripe;
    reply.stripes = hello->stripes;
    if (refusal != REFUSED_NOT)
        reply.run = 0; /* a stranger must not learn the run */
    else if (hello->ucx && hello->stripe == 0)
        ucx_accept(node->io.ucx, &link->stream, hello, &reply);
    else if (!node->no_shm)
        shm_accept(&link->stream, hello, &reply);
    uint8_t bytes[HELLO_SIZE];
    hello_encode(&reply, bytes);
    int rc = put_bytes(link, bytes, sizeof bytes);
    bool unknown = hello->run == 1 && hello->node == WORLD_ANY; /* real_reach */
    if (refusal != REFUSED_NOT && !unknown)
        connect_report_stranger(node, link, hello_refusal_text(refusal));
    if (refusal != REFUSED_NOT || rc != OK)
        return ERR_PEER;
    if (reply.shm)
        shm_begin(&link->stream);
    else if (reply.ucx)
        ucx_begin(&link->stream);
    return open_link(node, link, agreed_stripes(hello, &reply));
}

static int take_reply(struct node *node, struct link *link, const struct hello *hello)
{
    struct peer *peer = link->peer;
    if (hello->version != PROTOCOL_VERSION || hello->refusal != REFUSED_NOT) {
        char name[NAME_SIZE];
        log_warn(&node->log, "%s refuses the connection: %s", peer_name(peer, name),
                 hello_refusal_text(hello->refusal));
        return ERR_PEER;
    }
    if (hello->run != node->run || hello->node != peer->number || hello->peer != node->world.self ||
        hello->stripe != link->stripe || check_reply(&link->stream, hello) != OK)
        return ERR_PROTOCOL;
    const struct hello first = {.stripes = (uint8_t)node->stripes};
    return open_link(node, link, agreed_stripes(&first, hello));
}

int handshake_take(struct node *node, struct link *link)
{
    struct hello hello;
    if (hello_decode(link->in.head, &hello) == ERR_PROTOCOL)
        return ERR_PROTOCOL;
    return link->dialled ? take_reply(node, link, &hello) : take_stranger(node, link, &hello);
}

/* ---- to the driver, before there is an I/O thread ---- */

static int await_events(int fd, short events, int64_t deadline)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, io_timeout_ms(deadline, real_now()));
        if (n > 0)
            return 0;
        if (n == 0)
            return ETIMEDOUT;
        if (errno != EINTR)
            return errno;
    }
}

static int connect_until(int fd, const struct address *to, int64_t deadline)
{
    if (connect(fd, &to->u.any, to->len) != 0 && errno != EINPROGRESS && errno != EINTR)
        return errno;
    int code = await_events(fd, POLLOUT, deadline);
    return code ? code : io_connected(fd);
}

/* All `n` bytes, in or out. */
static int transfer_bytes(int fd, uint8_t *bytes, size_t n, bool out, int64_t deadline)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = out ? send(fd, bytes + done, n - done, MSG_NOSIGNAL)
                        : recv(fd, bytes + done, n - done, 0);
        if (k > 0) {
            done += (size_t)k;
            continue;
        }
        if (k == 0)
            return ECONNRESET;
        int code = errno == EAGAIN  ? await_events(fd, out ? POLLOUT : POLLIN, deadline)
                   : errno == EINTR ? 0
                                    : errno;
        if (code)
            return code;
    }
    return 0;
}

static int read_reply(struct node *node, const uint8_t bytes[HELLO_SIZE], struct stream *stream,
                      const char *where, struct err *err)
{
    struct hello reply;
    int rc = hello_decode(bytes, &reply);
    if (rc == ERR_PROTOCOL)
        return err_set(
            err, ERR_PEER,
            "driver at %s: the program there is not a Paceline driver; check host and port", where);
    if (rc == ERR_UNSUPPORTED)
        return err_set(
            err, ERR_PEER,
            "driver at %s: it speaks protocol version %u, this worker version %u; install "
            "the same release on both",
            where, reply.version, (unsigned)PROTOCOL_VERSION);
    if (reply.refusal == REFUSED_TOKEN)
        return err_set(err, ERR_INPUT,
                       "driver at %s: it refuses this worker: its token is not the run's; give it "
                       "the driver's token file",
                       where);
    if (reply.refusal != REFUSED_NOT)
        return err_set(err, ERR_PEER, "driver at %s: it refuses this worker: %s", where,
                       hello_refusal_text(reply.refusal));
    if (reply.node != WORLD_DRIVER || reply.peer >= WORLD_DRIVER || reply.run == 0 ||
        check_reply(stream, &reply) != OK)
        return err_set(err, ERR_PEER, "driver at %s: the program there is a worker", where);
    node->asks_token = reply.token;
    node->run = reply.run;
    node->world.self = reply.peer;
    return OK;
}

/* Where others reach this node when it listens at every address: where the driver sees it. */
static void find_own_address(struct node *node, int fd)
{
    struct address a = {.len = sizeof a.u};
    if (!address_is_wildcard(&node->address) || getsockname(fd, &a.u.any, &a.len) != 0)
        return;
    address_set_port(&a, address_port(&node->address));
    node->address = a;
}

/* Both hellos, on a connection that has been made. */
static int exchange_hellos(struct node *node, struct stream *stream, const char *where,
                           int64_t deadline, struct err *err)
{
    uint8_t bytes[HELLO_SIZE + TOKEN_SIZE];
    struct hello hello = own_hello(node, WORLD_DRIVER);
    propose_transports(node, stream, &hello);
    write_first(node, &hello, bytes);
    int code = transfer_bytes(stream->fd, bytes, sizeof bytes, true, deadline);
    if (code == 0)
        code = transfer_bytes(stream->fd, bytes, HELLO_SIZE, false, deadline);
    if (code)
        return err_set(err, ERR_PEER, "driver at %s: connected, but it does not reply: %s", where,
                       strerror(code));
    return read_reply(node, bytes, stream, where, err);
}

/* Send a hello of no node and no run. The driver's refusal shows that it is there. */
static int probe_driver(int fd, const struct address *there, int64_t deadline, struct err *err)
{
    uint8_t bytes[HELLO_SIZE + TOKEN_SIZE] = {0};
    const struct hello unknown = {.version = PROTOCOL_VERSION, .node = WORLD_ANY, .run = 1};
    struct hello reply;
    int code = connect_until(fd, there, deadline);
    if (code)
        return err_set(err, ERR_PEER, "cannot connect: %s", strerror(code));
    hello_encode(&unknown, bytes);
    code = transfer_bytes(fd, bytes, sizeof bytes, true, deadline);
    if (code == 0)
        code = transfer_bytes(fd, bytes, HELLO_SIZE, false, deadline);
    if (code)
        return err_set(err, ERR_PEER, "connected, but no reply: %s", strerror(code));
    return hello_decode(bytes, &reply) == ERR_PROTOCOL
               ? err_set(err, ERR_PEER, "the program there is not Paceline's")
               : OK;
}

int real_reach(const char *address, int64_t patience, struct err *err)
{
    struct address there;
    int rc = address_parse(address, &there, err);
    int fd = rc == OK ? io_socket(&there) : -1;
    if (rc == OK && fd < 0)
        return err_set(err, ERR_PEER, "no socket: %s", strerror(errno));
    if (rc == OK)
        rc = probe_driver(fd, &there, real_now() + patience, err);
    if (fd >= 0)
        close(fd);
    return rc;
}

int handshake_driver(struct node *node, const struct address *driver, struct stream *out,
                     struct err *err)
{
    char where[ADDRESS_TEXT_MAX];
    int64_t deadline = real_now() + node->limits.hello;
    address_print(driver, where, sizeof where);
    int fd = io_socket(driver);
    if (fd < 0)
        return err_set(err, ERR_IO, "driver at %s: no socket: %s", where, strerror(errno));
    int code = connect_until(fd, driver, deadline);
    *out = stream_tcp(fd);
    int rc = code ? err_set(err, ERR_PEER,
                            "driver at %s: cannot connect: %s; check that a driver listens there",
                            where, strerror(code))
                  : exchange_hellos(node, out, where, deadline, err);
    if (rc != OK)
        stream_close(out);
    else
        find_own_address(node, out->fd);
    return rc;
}
