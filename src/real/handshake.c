#define _GNU_SOURCE
#include "real/handshake.h"

#include "real/connect.h"
#include "real/node.h"
#include "real/seal.h"
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
        .plain = node->plain,
    };
}

/* A socket that has sent nothing takes that much at once. */
static int put_bytes(const struct link *link, const uint8_t *bytes, size_t n)
{
    ssize_t sent = send(link->stream.fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == (ssize_t)n ? OK : ERR_PEER;
}

int handshake_challenge(struct node *node, struct link *link)
{
    struct challenge challenge = {.version = PROTOCOL_VERSION};
    if (run_key_draw(challenge.nonce, sizeof challenge.nonce) != OK)
        return ERR_IO;
    if (node->keyed)
        memcpy(challenge.key_id, node->key->id, KEY_ID_SIZE);
    challenge_encode(&challenge, link->hellos.challenge);
    return put_bytes(link, link->hellos.challenge, HELLO_SIZE);
}

/* Write the connecting side's hello, and its proof. */
static int write_first(const struct node *node, const struct hello *hello, struct hellos *hellos)
{
    memset(hellos->first, 0, FIRST_SIZE);
    hello_encode(hello, hellos->first);
    return node->keyed ? run_key_prove_first(node->key, hellos) : OK;
}

/* The same of the accepting side. */
static int write_reply(const struct node *node, const struct hello *hello, struct hellos *hellos)
{
    bool proves = node->keyed && hello->refusal == REFUSED_NOT;
    memset(hellos->reply, 0, REPLY_SIZE);
    hello_encode(hello, hellos->reply);
    return proves ? run_key_prove_reply(node->key, hellos) : OK;
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

/* Does TLS follow these hellos? Not where the bytes stay in this host's memory. */
static bool is_sealed(const struct node *node, bool plain, const struct hello *reply)
{
    return node->keyed && !reply->shm && !reply->ucx && !(plain && reply->plain);
}

/* The challenge of the node that we connect to has arrived: send our hello. */
static int take_challenge(struct node *node, struct link *link)
{
    struct challenge challenge;
    if (challenge_decode(link->in.head, &challenge) == ERR_PROTOCOL)
        return ERR_PROTOCOL;
    memcpy(link->hellos.challenge, link->in.head, HELLO_SIZE);
    struct hello hello = own_hello(node, link->peer->number);
    hello.stripe = (uint8_t)link->stripe;
    propose_transports(node, &link->stream, &hello);
    int rc = write_first(node, &hello, &link->hellos);
    link->state = LINK_HANDSHAKE;
    return rc == OK ? put_bytes(link, link->hellos.first, FIRST_SIZE) : rc;
}

/* Why the first hello does not show that its sender has our key; NULL: it does. */
static const char *judge_key(const struct node *node, const struct hellos *hellos)
{
    static const uint8_t none[KEY_ID_SIZE];
    const uint8_t *id = hellos->first + HELLO_SIZE;
    if (!node->keyed || run_key_accepts_first(node->key, hellos))
        return NULL;
    if (memcmp(id, none, KEY_ID_SIZE) == 0)
        return "it shows no key";
    if (memcmp(id, node->key->id, KEY_ID_SIZE) == 0)
        return "its proof is not for this connection: it was replayed, or changed on its way";
    return "it has the key of another run";
}

/* The reason to refuse a connection that was made to us, judged by its hello and proof alone; *why
 * says it in words. */
static enum hello_refusal judge_hello(const struct node *node, const struct hello *hello,
                                      const struct hellos *hellos, const char **why)
{
    if (hello->version != PROTOCOL_VERSION)
        return REFUSED_VERSION;
    if ((*why = judge_key(node, hellos)))
        return REFUSED_KEY;
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
    peer->link[0] = link; /* no other connection may be it from now on */
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
    peer->link[hello->stripe] = link;
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

/* Both hellos were exchanged, and TLS follows. */
static int begin_session(struct node *node, struct link *link)
{
    uint8_t key[RUN_KEY_SIZE];
    struct seal_maker *maker = node_seal_maker(node);
    int rc = maker ? run_key_session(node->key, &link->hellos, key) : ERR_NOMEM;
    if (rc == OK)
        rc = seal_begin(maker, &link->stream, link->dialled, key);
    explicit_bzero(key, sizeof key);
    if (rc != OK)
        return rc;
    link->state = LINK_SEALING;
    return link->dialled ? handshake_seal(node, link) : OK; /* the client speaks first */
}

int handshake_seal(struct node *node, struct link *link)
{
    int rc = seal_handshake(&link->stream);
    if (rc == ERR_FULL)
        return OK;
    return rc == OK ? open_link(node, link, link->agreed) : rc;
}

static int take_stranger(struct node *node, struct link *link, const struct hello *hello)
{
    memcpy(link->hellos.first, link->in.head, FIRST_SIZE);
    const char *why = NULL;
    enum hello_refusal refusal = judge_hello(node, hello, &link->hellos, &why);
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
    int rc = write_reply(node, &reply, &link->hellos);
    rc = rc == OK ? put_bytes(link, link->hellos.reply, REPLY_SIZE) : rc;
    if (refusal != REFUSED_NOT)
        connect_report_stranger(node, link, why ? why : hello_refusal_text(refusal));
    if (refusal != REFUSED_NOT || rc != OK)
        return ERR_PEER;
    connect_known(node, link);
    if (reply.shm)
        shm_begin(&link->stream);
    else if (reply.ucx)
        ucx_begin(&link->stream);
    link->agreed = agreed_stripes(hello, &reply);
    return is_sealed(node, hello->plain, &reply) ? begin_session(node, link)
                                                 : open_link(node, link, link->agreed);
}

static int take_reply(struct node *node, struct link *link, const struct hello *hello)
{
    struct peer *peer = link->peer;
    memcpy(link->hellos.reply, link->in.head, REPLY_SIZE);
    if (hello->version != PROTOCOL_VERSION || hello->refusal != REFUSED_NOT) {
        char name[NAME_SIZE];
        log_warn(&node->log, "%s refuses the connection: %s", peer_name(peer, name),
                 hello_refusal_text(hello->refusal));
        return ERR_PEER;
    }
    if (node->keyed && !run_key_accepts_reply(node->key, &link->hellos)) {
        char name[NAME_SIZE];
        log_warn(&node->log, "%s does not have the run's key", peer_name(peer, name));
        return ERR_PEER;
    }
    if (hello->run != node->run || hello->node != peer->number || hello->peer != node->world.self ||
        hello->stripe != link->stripe || check_reply(&link->stream, hello) != OK)
        return ERR_PROTOCOL;
    const struct hello first = {.stripes = (uint8_t)node->stripes};
    link->agreed = agreed_stripes(&first, hello);
    return is_sealed(node, node->plain, hello) ? begin_session(node, link)
                                               : open_link(node, link, link->agreed);
}

int handshake_take(struct node *node, struct link *link)
{
    struct hello hello;
    if (link->state == LINK_CHALLENGE)
        return take_challenge(node, link);
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

static int refused_key(const struct node *node, const uint8_t id[KEY_ID_SIZE], const char *where,
                       struct err *err)
{
    static const uint8_t none[KEY_ID_SIZE];
    char theirs[KEY_ID_TEXT_MAX], own[KEY_ID_TEXT_MAX];
    run_key_print(id, theirs);
    run_key_print(node->keyed ? node->key->id : none, own);
    if (memcmp(id, none, KEY_ID_SIZE) == 0)
        return err_set(err, ERR_INPUT,
                       "driver at %s: it has no key, and this worker has key %s; start the driver "
                       "with that key",
                       where, own);
    if (!node->keyed)
        return err_set(err, ERR_INPUT,
                       "driver at %s: it refuses this worker: its run has key %s; give this worker "
                       "the driver's key file",
                       where, theirs);
    return err_set(err, ERR_INPUT,
                   "driver at %s: it refuses this worker: its run has key %s, and this worker key "
                   "%s; give it the driver's key file",
                   where, theirs, own);
}

static int refused_version(const char *where, uint32_t version, struct err *err)
{
    return err_set(err, ERR_PEER,
                   "driver at %s: it speaks protocol version %u, this worker version %u; install "
                   "the same release on both",
                   where, version, (unsigned)PROTOCOL_VERSION);
}

static int read_reply(struct node *node, const struct hellos *hellos, struct stream *stream,
                      const char *where, struct hello *reply, struct err *err)
{
    int rc = hello_decode(hellos->reply, reply);
    if (rc == ERR_PROTOCOL)
        return err_set(
            err, ERR_PEER,
            "driver at %s: the program there is not a Paceline driver; check host and port", where);
    if (rc == ERR_UNSUPPORTED)
        return refused_version(where, reply->version, err);
    struct challenge challenge;
    (void)challenge_decode(hellos->challenge, &challenge);
    if (reply->refusal == REFUSED_KEY)
        return refused_key(node, challenge.key_id, where, err);
    if (reply->refusal != REFUSED_NOT)
        return err_set(err, ERR_PEER, "driver at %s: it refuses this worker: %s", where,
                       hello_refusal_text(reply->refusal));
    if (node->keyed && !run_key_accepts_reply(node->key, hellos))
        return refused_key(node, challenge.key_id, where, err);
    if (reply->node != WORLD_DRIVER || reply->peer >= WORLD_DRIVER || reply->run == 0 ||
        check_reply(stream, reply) != OK)
        return err_set(err, ERR_PEER, "driver at %s: the program there is a worker", where);
    node->run = reply->run;
    node->world.self = reply->peer;
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

static int seal_stream(struct node *node, struct stream *stream, const struct hellos *hellos,
                       int64_t deadline)
{
    uint8_t key[RUN_KEY_SIZE];
    struct seal_maker *maker = node_seal_maker(node);
    int rc = maker ? run_key_session(node->key, hellos, key) : ERR_NOMEM;
    if (rc == OK)
        rc = seal_begin(maker, stream, true, key);
    explicit_bzero(key, sizeof key);
    while (rc == OK && (rc = seal_handshake(stream)) == ERR_FULL)
        rc = await_events(stream->fd, POLLIN, deadline) == 0 ? OK : ERR_TIMEOUT;
    return rc;
}

/* The challenge and both hellos, on a connection that has been made; errno's numbers. */
static int exchange_hellos(struct node *node, struct stream *stream, struct hellos *hellos,
                           int64_t deadline)
{
    struct challenge challenge;
    int code = transfer_bytes(stream->fd, hellos->challenge, HELLO_SIZE, false, deadline);
    if (code)
        return code;
    if (challenge_decode(hellos->challenge, &challenge) != OK) { /* the caller reports it */
        memcpy(hellos->reply, hellos->challenge, HELLO_SIZE);
        return 0;
    }
    struct hello hello = own_hello(node, WORLD_DRIVER);
    propose_transports(node, stream, &hello);
    if (write_first(node, &hello, hellos) != OK)
        return ENOMEM;
    code = transfer_bytes(stream->fd, hellos->first, FIRST_SIZE, true, deadline);
    return code ? code : transfer_bytes(stream->fd, hellos->reply, REPLY_SIZE, false, deadline);
}

static int join_driver(struct node *node, struct stream *stream, const char *where,
                       int64_t deadline, struct err *err)
{
    struct hellos hellos = {0};
    struct hello reply;
    int code = exchange_hellos(node, stream, &hellos, deadline);
    if (code)
        return err_set(err, ERR_PEER, "driver at %s: connected, but it does not reply: %s", where,
                       strerror(code));
    int rc = read_reply(node, &hellos, stream, where, &reply, err);
    if (rc != OK || !is_sealed(node, node->plain, &reply))
        return rc;
    rc = seal_stream(node, stream, &hellos, deadline);
    return rc == OK ? OK
                    : err_set(err, rc == ERR_NOMEM ? rc : ERR_PEER,
                              "driver at %s: connected, but there is no TLS session: %s", where,
                              status_text(rc));
}

/* The challenge shows that a node of ours is there. */
static int probe_driver(int fd, const struct address *there, int64_t deadline, struct err *err)
{
    uint8_t bytes[HELLO_SIZE];
    struct challenge challenge;
    int code = connect_until(fd, there, deadline);
    if (code)
        return err_set(err, ERR_PEER, "cannot connect: %s", strerror(code));
    code = transfer_bytes(fd, bytes, HELLO_SIZE, false, deadline);
    if (code)
        return err_set(err, ERR_PEER, "connected, but no reply: %s", strerror(code));
    return challenge_decode(bytes, &challenge) == ERR_PROTOCOL
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
                  : join_driver(node, out, where, deadline, err);
    if (rc != OK)
        stream_close(out);
    else
        find_own_address(node, out->fd);
    return rc;
}
