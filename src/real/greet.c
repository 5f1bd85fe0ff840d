#define _GNU_SOURCE
#include "real/greet.h"

#include "real/node.h"

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
    };
}

static void put_hello(struct link *link, const struct hello *hello)
{
    hello_encode(hello, link->out.head);
    link->out.head_len = HELLO_SIZE;
    link->out.sent = 0;
}

void greet_begin(struct node *node, struct link *link)
{
    struct hello hello = own_hello(node, link->peer->number);
    put_hello(link, &hello);
}

/* What speaks against a connection that was made to us, judged by its hello alone. */
static enum hello_refusal judge(const struct node *node, const struct hello *hello)
{
    if (hello->version != PROTOCOL_VERSION)
        return REFUSED_VERSION;
    if (node_is_driver(node)) {
        if (hello->run != 0 && hello->run != node->run)
            return REFUSED_RUN;
        return hello->node == WORLD_ANY ? REFUSED_NOT : REFUSED_NUMBER;
    }
    if (hello->run != node->run)
        return REFUSED_RUN;
    bool later = hello->node > node->world.self && hello->node < WORLD_DRIVER;
    return later && hello->peer == node->world.self ? REFUSED_NOT : REFUSED_NUMBER;
}

/* Find a place for it in the address book, the lock held. */
static enum hello_refusal admit(struct node *node, struct link *link, const struct hello *hello)
{
    struct peers *peers = &node->peers;
    if (peers->up >= PEERS_UP_MAX)
        return REFUSED_FULL;
    uint32_t number = node_is_driver(node) ? peers->next_number : hello->node;
    struct peer *peer = number < WORLD_DRIVER ? peer_make(node, number) : NULL;
    if (!peer)
        return REFUSED_FULL;
    if (node_is_driver(node))
        peers->next_number++;
    if (peer->state != PEER_AWAITED || peer->link)
        return REFUSED_NUMBER;
    link->peer = peer;
    link->state = LINK_OPEN;
    peer_up(node, peer, link);
    return REFUSED_NOT;
}

static int take_stranger(struct node *node, struct link *link, const struct hello *hello)
{
    enum hello_refusal refusal = judge(node, hello);
    if (refusal == REFUSED_NOT) {
        node_lock(node);
        refusal = admit(node, link, hello);
        node_unlock(node);
    }
    struct hello answer = own_hello(node, link->peer ? link->peer->number : hello->node);
    answer.refusal = refusal;
    if (refusal != REFUSED_NOT)
        answer.run = 0; /* not everybody's business */
    put_hello(link, &answer);
    int rc = link_write(node, link);
    if (refusal == REFUSED_NOT)
        return rc == ERR_FULL ? OK : rc;
    log_info(&node->log, "a connection is refused: %s", hello_refusal_text(refusal));
    return ERR_PEER;
}

static int take_answer(struct node *node, struct link *link, const struct hello *hello)
{
    struct peer *peer = link->peer;
    if (hello->version != PROTOCOL_VERSION || hello->refusal != REFUSED_NOT) {
        log_warn(&node->log, "worker %u refuses the connection: %s", peer->number,
                 hello_refusal_text(hello->refusal));
        return ERR_PEER;
    }
    if (hello->run != node->run || hello->node != peer->number || hello->peer != node->world.self)
        return ERR_PROTOCOL;
    node_lock(node);
    bool awaited = peer->state == PEER_AWAITED;
    if (awaited) {
        link->state = LINK_OPEN;
        peer_up(node, peer, link);
    }
    node_unlock(node);
    return awaited ? OK : ERR_PEER;
}

int greet_take(struct node *node, struct link *link)
{
    struct hello hello;
    if (hello_decode(link->in.head, &hello) == ERR_PROTOCOL)
        return ERR_PROTOCOL;
    return link->dialled ? take_answer(node, link, &hello) : take_stranger(node, link, &hello);
}

/* ---- to the driver, before there is an I/O thread ---- */

static int await(int fd, short events, int64_t deadline)
{
    for (;;) {
        int64_t left = deadline - real_now();
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left > 0 ? (int)(left / 1000000 + 1) : 0);
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
    if (connect(fd, &to->u.any, to->len) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return errno;
    int code = await(fd, POLLOUT, deadline);
    socklen_t len = sizeof code;
    if (code == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) != 0)
        code = errno;
    return code;
}

/* All `n` bytes, in or out. */
static int transfer(int fd, uint8_t *bytes, size_t n, bool out, int64_t deadline)
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
        int code = errno == EAGAIN  ? await(fd, out ? POLLOUT : POLLIN, deadline)
                   : errno == EINTR ? 0
                                    : errno;
        if (code)
            return code;
    }
    return 0;
}

static int read_answer(struct node *node, const uint8_t bytes[HELLO_SIZE], const char *where,
                       struct err *err)
{
    struct hello answer;
    int rc = hello_decode(bytes, &answer);
    if (rc == ERR_PROTOCOL)
        return err_set(err, ERR_PEER, "driver at %s: what answers there is no driver of ours",
                       where);
    if (rc == ERR_UNSUPPORTED)
        return err_set(err, ERR_PEER,
                       "driver at %s: it speaks protocol version %u, this worker version %u", where,
                       answer.version, (unsigned)PROTOCOL_VERSION);
    if (answer.refusal != REFUSED_NOT)
        return err_set(err, ERR_PEER, "driver at %s: it refuses this worker: %s", where,
                       hello_refusal_text(answer.refusal));
    if (answer.node != WORLD_DRIVER || answer.peer >= WORLD_DRIVER || answer.run == 0)
        return err_set(err, ERR_PEER, "driver at %s: what answers there is a worker", where);
    node->run = answer.run;
    node->world.self = answer.peer;
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

int greet_driver(struct node *node, const struct address *driver, int *out, struct err *err)
{
    char where[ADDRESS_TEXT_MAX];
    uint8_t bytes[HELLO_SIZE];
    int64_t deadline = real_now() + node->limits.hello;
    address_print(driver, where, sizeof where);
    int fd = io_socket(driver);
    if (fd < 0)
        return err_set(err, ERR_IO, "driver at %s: no socket: %s", where, strerror(errno));
    struct hello hello = own_hello(node, WORLD_DRIVER);
    hello_encode(&hello, bytes);
    int code = connect_until(fd, driver, deadline);
    const char *doing = code ? "cannot connect" : "connected, but it gives no answer";
    if (code == 0)
        code = transfer(fd, bytes, sizeof bytes, true, deadline);
    if (code == 0)
        code = transfer(fd, bytes, sizeof bytes, false, deadline);
    int rc = code ? err_set(err, ERR_PEER, "driver at %s: %s: %s", where, doing, strerror(code))
                  : read_answer(node, bytes, where, err);
    if (rc != OK) {
        close(fd);
        return rc;
    }
    find_own_address(node, fd);
    *out = fd;
    return OK;
}
